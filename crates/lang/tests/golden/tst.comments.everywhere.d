#!/usr/sbin/nanoprobe -s
/* one
 * two */
BEGIN/* a */,END /* b */ /* c */ { /* d */ trace/**/(1); }
