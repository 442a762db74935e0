// P17: eleven characters of source and a gibibyte of program. A limit must end the compiler.
int main[1 << 28] = {1};
