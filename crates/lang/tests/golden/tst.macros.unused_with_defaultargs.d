/* argument: 5 */
#pragma D option defaultargs
BEGIN { }
