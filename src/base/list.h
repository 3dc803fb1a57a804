/* SPDX-License-Identifier: MIT */
/* A circular doubly linked list whose links live in the elements. An empty head points at itself.
 */
#ifndef UEXT4_BASE_LIST_H
#define UEXT4_BASE_LIST_H

#include <stdbool.h>

#include "base/compiler.h"

struct list {
    struct list *next, *previous;
};

static inline void list_init(struct list *head)
{
    head->next = head;
    head->previous = head;
}

static inline bool list_is_empty(const struct list *head)
{
    return head->next == head;
}

static inline void list_insert_before(struct list *position, struct list *element)
{
    element->next = position;
    element->previous = position->previous;
    position->previous->next = element;
    position->previous = element;
}

static inline void list_add_first(struct list *head, struct list *element)
{
    list_insert_before(head->next, element);
}

static inline void list_add_last(struct list *head, struct list *element)
{
    list_insert_before(head, element);
}

/* Takes the element out and leaves it pointing at itself, so that removing twice is harmless. */
static inline void list_remove(struct list *element)
{
    element->previous->next = element->next;
    element->next->previous = element->previous;
    list_init(element);
}

#define list_entry(link, type, member) container_of(link, type, member)
#define list_first(head, type, member) list_entry((head)->next, type, member)
#define list_last(head, type, member)  list_entry((head)->previous, type, member)

/* Walks the links; `iterator` is a struct list pointer. The body may not remove the element. */
#define list_for_each(iterator, head) \
    for (struct list *iterator = (head)->next; iterator != (head); iterator = iterator->next)

/* As list_for_each, and the body may remove the element that it stands on. */
#define list_for_each_safe(iterator, following, head)                                           \
    for (struct list *iterator = (head)->next, *following = iterator->next; iterator != (head); \
         iterator = following, following = iterator->next)

#endif
