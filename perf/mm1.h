/*
 * mm1.h: the M/M/1 queue: objects arrive at random, wait for one server, are served for a random
 * time and leave. What is measured of it is the time that all objects together spend in the system.
 *
 * Arrivals and services draw from generators of their own, so every way of running the model makes
 * the same objects and must come to the same femtosecond.
 */
#ifndef KB_BENCH_MM1_H
#define KB_BENCH_MM1_H

#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

/* An arrival rate of 0.9 and a service rate of 1 per nanosecond. */
#define MM1_ARRIVAL_MEAN ((kb_time)1111111)
#define MM1_SERVICE_MEAN (1 * KB_NS)

enum { mm1_arrival_seed = 1, mm1_service_seed = 2 };

/* Room in the queue: it is longer than this once in 10^46 arrivals. */
enum { mm1_queue_max = 1024 };

typedef struct mm1_result {
    kb_time total;   /* time in system, summed over all objects */
    uint64_t events; /* that went through the event set */
} mm1_result;

/* The model with handlers; without elision, every step is an event. */
KB_MUST_USE kb_error *mm1_handlers(uint64_t objects, bool no_elision, mm1_result *result);

/* The model with two coroutines and a channel between them. */
KB_MUST_USE kb_error *mm1_coroutines(uint64_t objects, mm1_result *result);

/* The model with handlers on the reference heap. */
KB_MUST_USE kb_error *mm1_heap(uint64_t objects, mm1_result *result);

/* ---- What the models with handlers share ------------------------------------------------- */

typedef struct mm1_queue {
    kb_rng arrivals, services;
    uint64_t to_come; /* objects that have not arrived */
    kb_time total;
    kb_source arrival_source, departure_source;
    uint32_t on_arrival, on_departure; /* handlers */
    uint32_t first, end;               /* the queue, with the object being served */
    kb_time arrived[mm1_queue_max];
} mm1_queue;

void mm1_queue_init(mm1_queue *queue, uint64_t objects);

/* Puts an object in. True if it is the only one, so that its service begins. */
static inline bool mm1_enter(mm1_queue *queue, kb_time now)
{
    uint32_t length = queue->end - queue->first;

    KB_ASSERT(length < mm1_queue_max);
    queue->arrived[queue->end++ % mm1_queue_max] = now;
    queue->to_come--;
    return length == 0;
}

/* Takes the first object out. True if there is another one whose service begins. */
static inline bool mm1_leave(mm1_queue *queue, kb_time now)
{
    queue->total += now - queue->arrived[queue->first++ % mm1_queue_max];
    return queue->first != queue->end;
}

static inline kb_time mm1_next_arrival(mm1_queue *queue)
{
    return kb_rng_exponential_time(&queue->arrivals, MM1_ARRIVAL_MEAN);
}

static inline kb_time mm1_next_service(mm1_queue *queue)
{
    return kb_rng_exponential_time(&queue->services, MM1_SERVICE_MEAN);
}

#endif
