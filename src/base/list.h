/*
 * list.h: intrusive doubly linked lists. An item has the fields `next` and `prev`; a list is the
 * pointers to its first and last item, NULL if it is empty.
 *
 *     KB_LIST_APPEND(jobs->first, jobs->last, job);
 *     for (job *j = jobs->first; j; j = j->next) ...
 *     KB_LIST_REMOVE(jobs->first, jobs->last, job);
 *
 * A list that only grows at its front needs no pointer to the last item: KB_LIST_PUSH() and
 * KB_LIST_TAKE_OUT().
 *
 * Where an item leaves its list without knowing which it is in, the list is a ring through a head,
 * which is an item too:
 *
 *     KB_RING_INIT(&head);
 *     KB_RING_PUSH(&head, item);
 *     for (link *i = head.next; i != &head; i = i->next) ...
 *     KB_RING_REMOVE(item);
 */
#ifndef KB_BASE_LIST_H
#define KB_BASE_LIST_H

#define KB_LIST_APPEND(list_first, list_last, item)                                                \
    do {                                                                                           \
        (item)->next = NULL;                                                                       \
        (item)->prev = (list_last);                                                                \
        if (list_last)                                                                             \
            (list_last)->next = (item);                                                            \
        else                                                                                       \
            (list_first) = (item);                                                                 \
        (list_last) = (item);                                                                      \
    } while (0)

#define KB_LIST_REMOVE(list_first, list_last, item)                                                \
    do {                                                                                           \
        if ((item)->next)                                                                          \
            (item)->next->prev = (item)->prev;                                                     \
        else                                                                                       \
            (list_last) = (item)->prev;                                                            \
        if ((item)->prev)                                                                          \
            (item)->prev->next = (item)->next;                                                     \
        else                                                                                       \
            (list_first) = (item)->next;                                                           \
    } while (0)

#define KB_LIST_PUSH(list_first, item)                                                             \
    do {                                                                                           \
        (item)->prev = NULL;                                                                       \
        (item)->next = (list_first);                                                               \
        if (list_first)                                                                            \
            (list_first)->prev = (item);                                                           \
        (list_first) = (item);                                                                     \
    } while (0)

#define KB_LIST_TAKE_OUT(list_first, item)                                                         \
    do {                                                                                           \
        if ((item)->next)                                                                          \
            (item)->next->prev = (item)->prev;                                                     \
        if ((item)->prev)                                                                          \
            (item)->prev->next = (item)->next;                                                     \
        else                                                                                       \
            (list_first) = (item)->next;                                                           \
    } while (0)

#define KB_RING_INIT(head) ((head)->next = (head)->prev = (head))

/* At the front: the head's next. */
#define KB_RING_PUSH(head, item)                                                                   \
    do {                                                                                           \
        (item)->next = (head)->next;                                                               \
        (item)->prev = (head);                                                                     \
        (head)->next->prev = (item);                                                               \
        (head)->next = (item);                                                                     \
    } while (0)

#define KB_RING_REMOVE(item)                                                                       \
    do {                                                                                           \
        (item)->next->prev = (item)->prev;                                                         \
        (item)->prev->next = (item)->next;                                                         \
    } while (0)

#endif
