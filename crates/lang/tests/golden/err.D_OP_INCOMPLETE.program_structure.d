/* typed target */
pid$target:a.out:serve:entry { trace(((struct nobody *)arg0)->next); }
