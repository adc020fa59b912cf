ERROR { if (arg1) { trace(ucaller); } }
