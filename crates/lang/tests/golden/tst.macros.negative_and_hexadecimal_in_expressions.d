/* argument: -1 */
/* argument: 0xffffffff */
BEGIN /arg0 == $1 || arg0 == $2/ { trace(-$1); }
