/* python.h: benches in Python, which the extension of the same build runs. */
#ifndef KB_CLI_PYTHON_H
#define KB_CLI_PYTHON_H

/*
 * If the arguments are those of `run` with a bench in a file FILE.py, replaces the program by
 * Python, which runs the same command; ends it if there is no extension. Else does nothing.
 */
void python_take_over(int argc, char **argv);

#endif
