/* argument: 42 */
/* argument: -7 */
/* argument: timestamp */
/* argument: two words */
/* argument: 0x10 */
/* argument: "quoted" */
BEGIN { trace($1); trace($2); trace($3); trace($4); trace($$1); trace($5); trace($6); trace($$6); }
