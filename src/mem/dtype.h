/*
 * dtype.h: single numbers of the types that tensors have. kb_convert() and the sizes and names are
 * public.
 *
 * All small floating-point types are parts of f32, so f32 holds each of their values; what is
 * computed in f32 and rounded once to the small type is rounded right for one operation.
 */
#ifndef KB_MEM_DTYPE_H
#define KB_MEM_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

float mem_f16_to_f32(uint16_t bits);
float mem_bf16_to_f32(uint16_t bits);
float mem_f8e4m3_to_f32(uint8_t bits);
float mem_f8e5m2_to_f32(uint8_t bits);

uint16_t mem_f32_to_f16(float value);
uint16_t mem_f32_to_bf16(float value);
uint8_t mem_f32_to_f8e4m3(float value);
uint8_t mem_f32_to_f8e5m2(float value);

/* One element of any type, rounded once. */
double mem_number_get(kb_dtype dtype, const void *from);
void mem_number_set(kb_dtype dtype, void *to, double value);

/* Whether there is a dtype of this number. */
bool mem_dtype_exists(kb_dtype dtype);

#endif
