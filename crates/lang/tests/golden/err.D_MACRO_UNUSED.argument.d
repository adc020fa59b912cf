/* argument: 5 */
/* argument: more */
BEGIN { trace($1); }
