/* stand_ins.c: the values that a timing-only run replaced by stand-ins: see stand_ins.h. */
#include "stand_ins.h"

#include <string.h>

static const char *file_of(const tl_stand_ins *used)
{
    const char *slash = strrchr(used->first.file, '/');
    return slash ? slash + 1 : used->first.file;
}

void stand_ins_print(const tl_stand_ins *used, FILE *to)
{
    if (used->count == 0)
        return;
    bool is_one = used->count == 1;
    fprintf(to, "  timing-only: %llu value%s read by the kernel %s (first at %s:%d)\n",
            (unsigned long long)used->count, is_one ? "" : "s",
            is_one ? "was replaced by a stand-in" : "were replaced by stand-ins", file_of(used),
            used->first.line);
}

json_t *stand_ins_json(const tl_stand_ins *used)
{
    if (used->count == 0)
        return json_pack("{s:i, s:n}", "count", 0, "first");
    kb_text first = KB_TEXT_INIT;
    kb_text_printf(&first, "%s:%d", file_of(used), used->first.line);
    kb_text_escape_from(&first, 0);
    json_t *json = first.failed ? NULL
                                : json_pack("{s:I, s:s}", "count", (json_int_t)used->count, "first",
                                            kb_text_peek(&first));
    kb_text_fini(&first);
    return json;
}
