/*
 * vec.h: a growable array of any type.
 *
 *     KB_VEC(int) numbers = {0};
 *     if (!kb_vec_push(&numbers, 42))
 *         return kb_error_nomem();
 *     for (size_t i = 0; i < numbers.count; i++)
 *         use(numbers.items[i]);
 *     kb_vec_fini(&numbers);
 *
 * All zeros is an empty vector. Pushing may move the items, so keep indices, not pointers.
 * Macros, because the type is the point; each argument is evaluated once.
 */
#ifndef KB_BASE_VEC_H
#define KB_BASE_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/alloc.h"

#define KB_VEC(T)                                                                                  \
    struct {                                                                                       \
        T *items;                                                                                  \
        size_t count;                                                                              \
        size_t capacity;                                                                           \
    }

/* Makes room for `extra` more. False if there is no memory, and then nothing has changed. */
#define kb_vec_reserve(vec, extra)                                                                 \
    __extension__({                                                                                \
        __typeof__(vec) kb_vec_r_ = (vec);                                                         \
        size_t kb_vec_extra_ = (extra);                                                            \
        bool kb_vec_fits_ = kb_vec_extra_ <= kb_vec_r_->capacity - kb_vec_r_->count;               \
        if (!kb_vec_fits_) {                                                                       \
            void *kb_vec_grown_ = kb_grow_array(kb_vec_r_->items, kb_vec_r_->count, kb_vec_extra_, \
                                                sizeof *kb_vec_r_->items, &kb_vec_r_->capacity);   \
            kb_vec_fits_ = kb_vec_grown_ != NULL;                                                  \
            if (kb_vec_fits_)                                                                      \
                kb_vec_r_->items = kb_vec_grown_;                                                  \
        }                                                                                          \
        kb_vec_check_this(kb_vec_fits_);                                                           \
    })

/* Appends `value`. False if there is no memory, and then nothing has changed. */
#define kb_vec_push(vec, value)                                                                    \
    __extension__({                                                                                \
        __typeof__(vec) kb_vec_p_ = (vec);                                                         \
        bool kb_vec_pushed_ = kb_vec_reserve(kb_vec_p_, 1);                                        \
        if (kb_vec_pushed_)                                                                        \
            kb_vec_p_->items[kb_vec_p_->count++] = (value);                                        \
        kb_vec_check_this(kb_vec_pushed_);                                                         \
    })

/* Frees the items and leaves an empty vector. */
#define kb_vec_fini(vec)                                                                           \
    do {                                                                                           \
        __typeof__(vec) kb_vec_f_ = (vec);                                                         \
        free(kb_vec_f_->items);                                                                    \
        kb_vec_f_->items = NULL;                                                                   \
        kb_vec_f_->count = kb_vec_f_->capacity = 0;                                                \
    } while (0)

/* Lets the compiler warn of a reserve or push whose result is ignored. */
static inline KB_MUST_USE bool kb_vec_check_this(bool result)
{
    return result;
}

#endif
