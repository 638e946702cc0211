/*
 * access.c: which tensors a command reads and writes, for the log. Only watchers of the log need
 * it, so nothing is looked up while there are none.
 *
 * A tensor may be freed before the log is told of the command: names are copied, and kept until the
 * runner is destroyed, each once.
 */
#include <stdlib.h>
#include <string.h>

#include "tl_private.h"

/* Where the name is in the sorted list, or belongs. */
static size_t find_name(const tl_runner *runner, const char *name, bool *is_there)
{
    size_t low = 0, high = runner->tensor_names.count;
    *is_there = false;
    while (low < high && !*is_there) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(runner->tensor_names.items[middle], name);
        *is_there = order == 0;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return high;
}

/* NULL if there is no memory. */
static const char *keep_name(tl_runner *runner, const char *name)
{
    bool is_there;
    size_t at = find_name(runner, name, &is_there);
    if (is_there)
        return runner->tensor_names.items[at];
    size_t bytes = strlen(name) + 1;
    char *copy = kb_alloc_array(bytes, 1);
    if (!copy || !kb_vec_reserve(&runner->tensor_names, 1)) {
        free(copy);
        return NULL;
    }
    memcpy(copy, name, bytes);
    char **items = runner->tensor_names.items;
    memmove(&items[at + 1], &items[at], (runner->tensor_names.count++ - at) * sizeof *items);
    items[at] = copy;
    return copy;
}

void tl_free_tensor_names(tl_runner *runner)
{
    for (size_t i = 0; i < runner->tensor_names.count; i++)
        free(runner->tensor_names.items[i]);
    kb_vec_fini(&runner->tensor_names);
}

/* The address behind the last byte of the place, which has elements. */
static uint64_t end_of(const tl_handle *place)
{
    unsigned __int128 last = 0;
    for (int i = 0; i < place->shape.rank; i++)
        last += (unsigned __int128)(uint64_t)(place->shape.dims[i] - 1) *
                (uint64_t)place->strides.dims[i];
    unsigned __int128 end = (uint64_t)place->ptr + (last + 1) * kb_dtype_bytes(place->dtype);
    return end > UINT64_MAX ? UINT64_MAX : (uint64_t)end;
}

const kb_op_access *tl_note_access(const tl_call *call, tl_command *command, const tl_handle *place,
                                   bool write)
{
    const tl_context *tl = call->tl;
    const tl_runner_options *has = &tl->runner->has;
    bool is_watched = !has->instant && kb_oplog_is_watched(has->log);
    if (KB_LIKELY(!is_watched || !command->details) || tl_elements(&place->shape) == 0)
        return NULL;
    const mem_mmu *mmu = has->mmus[tl->run.pe.sip];
    uint64_t start = (uint64_t)place->ptr, end = end_of(place);
    mem_mapped tensor;
    /* A mask may leave out what is beyond either end of the tensor. */
    if (!mem_mmu_get_mapped(mmu, start, &tensor) && !mem_mmu_get_mapped(mmu, end - 1, &tensor))
        return NULL;
    if (!tensor.name)
        return NULL;
    start = start < tensor.va ? tensor.va : start;
    end = end > tensor.end ? tensor.end : end;
    const char *name = keep_name(tl->runner, tensor.name);
    if (!name)
        tl_fail(call, kb_error_nomem());
    tl_details *details = command->details;
    KB_ASSERT(details->access_count < TL_MATRICES);
    kb_op_access *access = &details->accesses[details->access_count++];
    *access = (kb_op_access){.tensor = name,
                             .dtype = tensor.dtype,
                             .write = write,
                             .offset = start - tensor.va,
                             .bytes = end - start};
    return access;
}
