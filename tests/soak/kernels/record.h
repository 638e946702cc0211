/*
 * record.h: writes down all that a context tells of a run, one line an item, times in
 * femtoseconds, in an order that follows from the lines themselves. So two runs are the same if
 * their texts are.
 *
 * Numbers of values and messages come from counters that all PEs share. What matters is who uses
 * which: values are numbered anew for each PE, and messages for each sender, in the same order.
 */
#ifndef RANDOM_KERNELS_RECORD_H
#define RANDOM_KERNELS_RECORD_H

#include "program.h"

enum { OP_VALUES = 4 }; /* the result, and the operands */

typedef struct recorded_op {
    uint64_t pe; /* the host's is 0 */
    kb_time start, end;
    uint64_t values[OP_VALUES];
    uint64_t message;
    bool is_send;
    char *text;
} recorded_op;

typedef struct recorded_line {
    char *text;
} recorded_line;

typedef struct line_list {
    recorded_line *items;
    int count, room;
} line_list;

/* A value of a PE, or a message. */
typedef struct owned_number {
    uint64_t owner, number;
} owned_number;

typedef struct number_list {
    owned_number *items;
    int count, room;
} number_list;

typedef struct recorder {
    recorded_op *ops;
    int count, room;
    kb_time last_end;
    int out_of_order; /* operations that were told after one that ended later */
    line_list warnings, messages, tcm;
} recorder;

/* ---- While it runs ----------------------------------------------------------------------- */

static inline void add_line(line_list *list, const char *text)
{
    list->items = grow(list->items, list->count, &list->room, sizeof *list->items);
    list->items[list->count++].text = strdup(text);
}

static inline void on_warning(void *self, const char *line)
{
    add_line(&((recorder *)self)->warnings, line);
}

static inline void on_message(void *self, const char *line)
{
    add_line(&((recorder *)self)->messages, line);
}

static inline void on_tcm(void *self, const kb_pe *pe, kb_time now, uint64_t bytes)
{
    char text[96];
    snprintf(text, sizeof text, "%u.%u.%u %lld %llu", pe->sip, pe->cube, pe->pe, (long long)now,
             (unsigned long long)bytes);
    add_line(&((recorder *)self)->tcm, text);
}

static inline char *describe_op(const kb_op *op)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    if (!file)
        abort();
    fprintf(file, "%s %s '%s' bytes %llu flops %llu launch %llu", kb_unit_name(op->unit), op->name,
            op->label, (unsigned long long)op->bytes, (unsigned long long)op->flops,
            (unsigned long long)op->launch);
    if (op->direction)
        fprintf(file, " direction %s", op->direction);
    if (op->file)
        fprintf(file, " line %d", op->line);
    if (op->unfinished)
        fputs(" unfinished", file);
    for (size_t i = 0; i < op->access_count; i++)
        fprintf(file, " %s %s %llu+%llu", op->accesses[i].write ? "writes" : "reads",
                op->accesses[i].tensor, (unsigned long long)op->accesses[i].offset,
                (unsigned long long)op->accesses[i].bytes);
    fclose(file);
    return text;
}

static inline void on_op(void *self, const kb_op *op)
{
    recorder *r = self;
    r->ops = grow(r->ops, r->count, &r->room, sizeof *r->ops);
    recorded_op *is = &r->ops[r->count++];
    *is = (recorded_op){.start = op->start, .end = op->end, .message = op->message};
    if (op->unit != KB_UNIT_HOST)
        is->pe = (1 + (uint64_t)op->pe.sip) << 40 | (uint64_t)op->pe.cube << 20 | op->pe.pe;
    is->values[0] = op->result;
    memcpy(&is->values[1], op->operands, sizeof op->operands);
    is->is_send = strcmp(op->name, "send") == 0;
    is->text = describe_op(op);
    if (op->end < r->last_end)
        r->out_of_order++;
    r->last_end = op->end;
}

/* ---- Numbers ----------------------------------------------------------------------------- */

static inline int compare_numbers(const void *a, const void *b)
{
    const owned_number *x = a, *y = b;
    if (x->owner != y->owner)
        return x->owner < y->owner ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static inline void add_number(number_list *list, uint64_t owner, uint64_t number)
{
    if (number == 0)
        return;
    list->items = grow(list->items, list->count, &list->room, sizeof *list->items);
    list->items[list->count++] = (owned_number){owner, number};
}

static inline void sort_numbers(number_list *list)
{
    int kept = 0;
    if (list->count > 0)
        qsort(list->items, (size_t)list->count, sizeof *list->items, compare_numbers);
    for (int i = 0; i < list->count; i++)
        if (kept == 0 || compare_numbers(&list->items[kept - 1], &list->items[i]) != 0)
            list->items[kept++] = list->items[i];
    list->count = kept;
}

/* Its place among those of its owner, from 1 on; 0 if it is none. */
static inline long rank_of(const number_list *list, uint64_t owner, uint64_t number)
{
    owned_number key = {owner, number}, *found = NULL;
    if (number && list->count > 0)
        found = bsearch(&key, list->items, (size_t)list->count, sizeof key, compare_numbers);
    if (!found)
        return 0;
    const owned_number *first = found;
    while (first > list->items && first[-1].owner == owner)
        first--;
    return found - first + 1;
}

/* ---- Afterwards -------------------------------------------------------------------------- */

static inline int compare_ops(const void *a, const void *b)
{
    const recorded_op *x = a, *y = b;
    if (x->pe != y->pe)
        return x->pe < y->pe ? -1 : 1;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    int by_text = strcmp(x->text, y->text);
    if (by_text != 0)
        return by_text;
    int by_values = memcmp(x->values, y->values, sizeof x->values);
    return by_values ? by_values : (x->message > y->message) - (x->message < y->message);
}

static inline void write_op(const recorder *r, const recorded_op *op, const number_list *values,
                            const number_list *senders, const number_list *sent, FILE *out)
{
    (void)r;
    if (op->pe)
        fprintf(out, "op %u.%u.%u", (unsigned)(op->pe >> 40) - 1,
                (unsigned)(op->pe >> 20) & 0xfffff, (unsigned)op->pe & 0xfffff);
    else
        fputs("op host", out);
    fprintf(out, " %lld to %lld %s", (long long)op->start, (long long)op->end, op->text);
    if (op->message) {
        owned_number key = {op->message, 0};
        const owned_number *from = NULL; /* of those, the owner is the message */
        for (int low = 0, high = senders->count; low < high;) {
            int middle = (low + high) / 2;
            from = &senders->items[middle];
            if (from->owner == key.owner)
                break;
            if (from->owner < key.owner)
                low = middle + 1;
            else
                high = middle;
            from = NULL;
        }
        if (from)
            fprintf(out, " message %llx/%ld", (unsigned long long)from->number,
                    rank_of(sent, from->number, op->message));
    }
    for (int i = 0; i < OP_VALUES; i++)
        fprintf(out, " %ld", rank_of(values, op->pe, op->values[i]));
    fputc('\n', out);
}

static inline void write_lines(const char *section, const line_list *list, FILE *out)
{
    for (int i = 0; i < list->count; i++)
        fprintf(out, "%s %s\n", section, list->items[i].text);
}

static inline void write_record(recorder *r, FILE *out)
{
    number_list values = {0}, senders = {0}, sent = {0};
    if (r->count > 0)
        qsort(r->ops, (size_t)r->count, sizeof *r->ops, compare_ops);
    for (int i = 0; i < r->count; i++) {
        const recorded_op *op = &r->ops[i];
        for (int k = 0; k < OP_VALUES; k++)
            add_number(&values, op->pe, op->values[k]);
        if (op->is_send) {
            add_number(&sent, op->pe, op->message);
            add_number(&senders, op->message, op->pe);
        }
    }
    sort_numbers(&values);
    sort_numbers(&senders);
    sort_numbers(&sent);
    for (int i = 0; i < r->count; i++)
        write_op(r, &r->ops[i], &values, &senders, &sent, out);
    fprintf(out, "order %d operations told after one that ended later\n", r->out_of_order);
    write_lines("warning", &r->warnings, out);
    write_lines("message", &r->messages, out);
    write_lines("tcm", &r->tcm, out);
    free(values.items);
    free(senders.items);
    free(sent.items);
}

static inline void free_lines(line_list *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->items[i].text);
    free(list->items);
}

static inline void recorder_fini(recorder *r)
{
    for (int i = 0; i < r->count; i++)
        free(r->ops[i].text);
    free(r->ops);
    free_lines(&r->warnings);
    free_lines(&r->messages);
    free_lines(&r->tcm);
}

#endif
