/*
 * mm1_engine.c: the M/M/1 queue on KernBench's own engine.
 *
 * Handlers: an arrival schedules the next one, and the departure if the server is idle; a departure
 * schedules the next one if a customer waits. Where the next event would come first anyway the
 * handler goes on with it at once, which kb_sim_advance() tells.
 */
#include "mm1.h"

static void on_arrival(kb_sim *sim, void *self, uint64_t arg)
{
    mm1_queue *queue = self;
    kb_time now = kb_sim_now(sim);

    while (true) {
        if (mm1_enter(queue, now))
            kb_sim_at(sim, &queue->departure_source, now + mm1_next_service(queue),
                      queue->on_departure, arg);
        if (queue->to_come == 0)
            return;
        now += mm1_next_arrival(queue);
        if (!kb_sim_advance(sim, &queue->arrival_source, now))
            break;
    }
    kb_sim_at(sim, &queue->arrival_source, now, queue->on_arrival, arg);
}

static void on_departure(kb_sim *sim, void *self, uint64_t arg)
{
    mm1_queue *queue = self;
    kb_time now = kb_sim_now(sim);

    while (mm1_leave(queue, now)) {
        now += mm1_next_service(queue);
        if (!kb_sim_advance(sim, &queue->departure_source, now)) {
            kb_sim_at(sim, &queue->departure_source, now, queue->on_departure, arg);
            return;
        }
    }
}

kb_error *mm1_handlers(uint64_t objects, bool no_elision, mm1_result *result)
{
    mm1_queue queue;
    kb_sim *sim;

    mm1_queue_init(&queue, objects);
    KB_TRY(kb_sim_create(&(kb_sim_options){.no_elision = no_elision}, &sim));
    kb_error *err = kb_sim_add_handler(sim, on_arrival, &queue, &queue.on_arrival);
    if (err == NULL)
        err = kb_sim_add_handler(sim, on_departure, &queue, &queue.on_departure);
    if (err == NULL) {
        kb_sim_at(sim, &queue.arrival_source, mm1_next_arrival(&queue), queue.on_arrival, 0);
        err = kb_sim_run(sim, KB_FOREVER);
    }
    result->total = queue.total;
    result->events = kb_sim_get_stats(sim).events;
    kb_sim_destroy(sim);
    return err;
}

/* ---- Coroutines -------------------------------------------------------------------------- */

typedef struct shop {
    uint64_t objects;
    kb_time total;
    kb_channel queue; /* of times of arrival */
} shop;

static void arrivals(kb_co *co, void *arg)
{
    shop *s = arg;
    kb_rng rng;

    kb_rng_init(&rng, mm1_arrival_seed);
    for (uint64_t i = 0; i < s->objects; i++) {
        kb_co_sleep(co, kb_rng_exponential_time(&rng, MM1_ARRIVAL_MEAN));
        kb_channel_put(co, &s->queue, (uint64_t)kb_sim_now(kb_co_sim(co)));
    }
}

static void server(kb_co *co, void *arg)
{
    shop *s = arg;
    kb_rng rng;

    kb_rng_init(&rng, mm1_service_seed);
    for (uint64_t i = 0; i < s->objects; i++) {
        kb_time arrived = (kb_time)kb_channel_get(co, &s->queue);
        kb_co_sleep(co, kb_rng_exponential_time(&rng, MM1_SERVICE_MEAN));
        s->total += kb_sim_now(kb_co_sim(co)) - arrived;
    }
}

static kb_error *open_shop(shop *s, kb_sim *sim)
{
    KB_TRY(
        kb_co_spawn(sim, &(kb_co_options){.name = "arrivals", .source_id = 0}, arrivals, s, NULL));
    KB_TRY(kb_co_spawn(sim, &(kb_co_options){.name = "server", .source_id = 1}, server, s, NULL));
    return kb_sim_run(sim, KB_FOREVER);
}

kb_error *mm1_coroutines(uint64_t objects, mm1_result *result)
{
    shop s = {.objects = objects};
    kb_sim *sim;

    KB_TRY(kb_sim_create(NULL, &sim));
    kb_error *err = kb_channel_init(&s.queue, "queue", mm1_queue_max);
    if (err == NULL) {
        err = open_shop(&s, sim);
        result->total = s.total;
        result->events = kb_sim_get_stats(sim).events;
    }
    kb_sim_destroy(sim);
    if (s.queue.words != NULL)
        kb_channel_fini(&s.queue);
    return err;
}
