/* argument: 17 */
/* argument: malloc */
pid$1::$2*:entry, pid$target:::entry {}
