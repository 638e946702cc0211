/*
 * head_kernbench.c: the program at the head of kernbench.h. The last element comes back as it was,
 * after some simulated time.
 *
 * run: build-program head_kernbench.c && ./head_kernbench >printed
 * run: grep -qx '6 came back after [1-9][0-9]*\.[0-9]* ns' printed
 */
/* @EXAMPLE@ */
