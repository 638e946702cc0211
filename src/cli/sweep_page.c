/*
 * sweep_page.c: the results of a sweep as an HTML page: the document of --json with the plot of
 * --plot. Results that cannot be drawn have a page without a plot, unless the options say which
 * kind it shall be.
 */
#include "sweep_report.h"

#include "cli.h"
#include "json.h"
#include "report_page.h"

/* `plot` becomes JSON's null if there is nothing to draw. */
static kb_error *draw(const sweep_report *r, json_t **plot)
{
    kb_text svg = KB_TEXT_INIT;
    kb_error *err = sweep_draw(r, &svg);
    if (err && kb_error_code(err) == KB_ERR_INPUT && r->args->plot_kind == SWEEP_PLOT_AUTO) {
        kb_error_free(err);
        err = NULL;
        *plot = json_null();
    } else if (!err) {
        *plot = svg.failed ? NULL : json_stringn(kb_text_peek(&svg), svg.length);
    }
    kb_text_fini(&svg);
    return err ? kb_error_wrap(err, "--report") : NULL;
}

kb_error *sweep_write_page(const sweep_report *r)
{
    json_t *document = NULL, *plot = NULL;
    KB_TRY(draw(r, &plot));
    kb_error *err = sweep_make_document(r, &document);
    if (!err) {
        json_t *data = report_begin_document("sweep", document, r->args->command);
        cli_json_set(&data, "plot", plot);
        err = report_write_page(r->args->page, data);
    } else {
        json_decref(plot);
    }
    json_decref(document);
    return err;
}
