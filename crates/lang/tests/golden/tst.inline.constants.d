inline int LIMIT = 100;
inline string NAME = "x";
inline uint8_t SMALL = 300;
inline int64_t DOUBLE = LIMIT * 2;
BEGIN /pid < LIMIT/ { trace(NAME); trace(DOUBLE); trace(SMALL); @ = lquantize(arg0, 0, LIMIT, 10); }
