// P18: a header without an end. A limit must end the compiler.
#include "/dev/zero"
int main(void) { return 0; }
