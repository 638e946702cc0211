/* no_main.h: put before each file of the program, whose main() gets another name here. */
#define main kernbench_main
int kernbench_main(int argc, char **argv);
