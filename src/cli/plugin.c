/*
 * plugin.c: finds benches and collectives. Those in files of users are compiled to a shared
 * library, which is loaded into the process; the program exports the public functions to it.
 * Messages of the compiler go to stderr unchanged. The library is built in a temporary directory,
 * which is removed when it is loaded or the process ends.
 *
 * Operations of kernels are macros. So the compiler is told to report the line of the call, not the
 * expansion, and to stop at the first error, as later ones concern the rest of the macro.
 */
#include "plugin.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "benches/benches.h"
#include "cleanup.h"
#include "cli.h"
#include "crash.h"
#include "embedded.h"
#include "files.h"
#include "parens.h"

/* ---- Benches by name --------------------------------------------------------------------- */

/* The bench of that name; or NULL, and the names are offered to the suggestion. */
static const kb_bench_spec *find(const kb_bench_spec *const *specs, const char *name,
                                 kb_suggestion *near)
{
    kb_suggestion_init(near, name);
    for (; *specs; specs++) {
        if (strcmp((*specs)->name, name) == 0)
            return *specs;
        kb_suggestion_offer(near, (*specs)->name);
    }
    return NULL;
}

static kb_code find_builtin(const char *name, plugin *p)
{
    char buffer[CLI_CLIP];
    kb_suggestion near;
    p->spec = find(benches, name, &near);
    if (p->spec)
        return KB_OK;
    return cli_fail(KB_ERR_INPUT, "unknown bench '%s'%s", cli_clip(name, buffer),
                    kb_suggestion_near(&near, "; see kernbench list, or name a file: ./mine.c"));
}

/* ---- Compiling --------------------------------------------------------------------------- */

/* Appends the directory of this program, with "/"; nothing if it is unknown. */
static void append_own_directory(kb_text *path)
{
    char link[4096];
    ssize_t length = readlink("/proc/self/exe", link, sizeof link - 1);
    if (length <= 0)
        return;
    link[length] = '\0';
    kb_text_append(path, link, (size_t)(strrchr(link, '/') + 1 - link));
}

/* Whether the directory has the headers. False if out of memory: then the text is failed. */
static bool has_headers(kb_text *directory)
{
    kb_text header = KB_TEXT_INIT;
    kb_text_printf(&header, "%s/kernbench/tl.h", kb_text_peek(directory));
    directory->failed |= header.failed;
    bool found = !directory->failed && access(kb_text_peek(&header), R_OK) == 0;
    kb_text_fini(&header);
    return found;
}

/* The installed headers, or those of the build. */
static kb_code find_headers(kb_text *directory)
{
    append_own_directory(directory);
    kb_text_puts(directory, KB_INSTALLED_HEADERS);
    if (has_headers(directory))
        return KB_OK;
    bool failed = directory->failed;
    kb_text_fini(directory);
    kb_text_puts(directory, KB_BUILD_HEADERS);
    if (!failed && has_headers(directory))
        return KB_OK;
    if (failed || directory->failed)
        return cli_report(kb_error_nomem());
    return cli_fail(KB_ERR_HOST, "cannot find the headers <kernbench/...>: install KernBench "
                                 "with its headers");
}

/* A command line of the compiler; owns its words. */
typedef struct command {
    KB_VEC(char *) words;
    const char *directory; /* for temporary files */
    bool failed;
} command;

static void add_word(command *c, const char *word, size_t length)
{
    char *copy = strndup(word, length);
    if (copy && kb_vec_push(&c->words, copy))
        return;
    free(copy);
    c->failed = true;
}

static void command_fini(command *c)
{
    for (size_t i = 0; i < c->words.count; i++)
        free(c->words.items[i]);
    kb_vec_fini(&c->words);
}

/* $CC may have options: "ccache gcc". */
static void add_compiler(command *c)
{
    const char *compiler = getenv("CC");
    if (!compiler || compiler[strspn(compiler, " \t")] == '\0')
        compiler = "cc";
    while (*(compiler += strspn(compiler, " \t")) != '\0') {
        size_t length = strcspn(compiler, " \t");
        add_word(c, compiler, length);
        compiler += length;
    }
}

static void compose(command *c, const char *source, const char *headers, const char *library,
                    bool is_clang)
{
    static const char *const of_clang[] = {"-ferror-limit=1", "-fmacro-backtrace-limit=1", NULL};
    static const char *const of_gcc[] = {"-fmax-errors=1", "-ftrack-macro-expansion=0", NULL};
    static const char *const options[] = {"-std=gnu17",
                                          "-O2",
                                          "-g",
                                          "-shared",
                                          "-fPIC",
                                          "-Wall",
                                          "-Wextra",
                                          "-Wno-unused-parameter",
                                          "-Werror=int-conversion",
                                          "-Werror=incompatible-pointer-types",
                                          "-fstack-clash-protection"};
    kb_text include = KB_TEXT_INIT, path = KB_TEXT_INIT;
    add_compiler(c);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        add_word(c, options[i], strlen(options[i]));
    for (const char *const *option = is_clang ? of_clang : of_gcc; *option; option++)
        add_word(c, *option, strlen(*option));
    kb_text_printf(&include, "-I%s", headers);
    add_word(c, kb_text_peek(&include), include.length);
    add_word(c, "-o", 2);
    add_word(c, library, strlen(library));
    /* "./" for names that would be an option (-x.c) or a file of options (@x.c). */
    bool is_plain = isalnum((unsigned char)source[0]) || strchr("./_", source[0]);
    kb_text_printf(&path, "%s%s", is_plain ? "" : "./", source);
    add_word(c, kb_text_peek(&path), path.length);
    c->failed = c->failed || include.failed || path.failed || !kb_vec_push(&c->words, NULL);
    kb_text_fini(&include);
    kb_text_fini(&path);
}

/*
 * The environment, with TMPDIR set to the directory: temporary files of a compiler that a signal
 * ends are removed with it. NULL if out of memory.
 */
static char **make_environment(const char *directory)
{
    static const char name[] = "TMPDIR=";
    size_t count = 0, kept = 1;
    while (environ[count])
        count++;
    kb_text setting = KB_TEXT_INIT;
    kb_text_printf(&setting, "%s%s", name, directory);
    char **made = kb_alloc_array(count + 2, sizeof *made);
    char *first = kb_text_take(&setting);
    if (!made || !first) {
        free(first);
        free(made);
        return NULL;
    }
    made[0] = first;
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], name, strlen(name)) != 0)
            made[kept++] = environ[i];
    made[kept] = NULL;
    return made;
}

static void free_environment(char **made)
{
    free(made[0]);
    free(made);
}

/*
 * Starts it in its own process group, so that a signal reaches all of its processes. Signals are
 * reset to their state at the start of this program, except SIGTTOU, which is ignored, as a
 * terminal may stop the output of background groups.
 */
static int start(const command *c, posix_spawn_file_actions_t *actions, pid_t *child)
{
    posix_spawnattr_t attributes;
    sigset_t all, before, defaults;
    int error = posix_spawnattr_init(&attributes);
    if (error != 0)
        return error;
    char **environment = make_environment(c->directory);
    if (!environment) {
        (void)posix_spawnattr_destroy(&attributes);
        return ENOMEM;
    }
    (void)signal(SIGCHLD, SIG_DFL); /* if ignored, waitpid() gets no status */
    (void)signal(SIGTTOU, SIG_IGN);
    sigfillset(&all);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGXFSZ);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETSIGDEF);
    (void)posix_spawnattr_setpgroup(&attributes, 0);
    (void)posix_spawnattr_setsigmask(&attributes, &before);
    (void)posix_spawnattr_setsigdefault(&attributes, &defaults);
    error =
        posix_spawnp(child, c->words.items[0], actions, &attributes, c->words.items, environment);
    if (error == 0)
        cleanup_set_child(*child);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)signal(SIGTTOU, SIG_DFL);
    (void)posix_spawnattr_destroy(&attributes);
    free_environment(environment);
    return error;
}

/* The child stays registered for cleanup until it was waited for. Returns an errno, or 0. */
static int wait_for(pid_t child, int *status)
{
    siginfo_t info;
    sigset_t all, before;
    while (waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) != 0)
        if (errno != EINTR)
            return errno;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    cleanup_set_child(0);
    int error = waitpid(child, status, 0) < 0 ? errno : 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Runs it. Its output goes to the file, or to stderr if that is NULL: stdout is for results. */
static kb_code spawn(const command *c, const char *out, int *status)
{
    posix_spawn_file_actions_t actions;
    pid_t child;
    if (c->failed || posix_spawn_file_actions_init(&actions) != 0)
        return cli_report(kb_error_nomem());
    int error = 0;
    if (out)
        error = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, out, O_WRONLY | O_CREAT,
                                                 0600);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    if (error == 0)
        error = start(c, &actions, &child);
    posix_spawn_file_actions_destroy(&actions);
    if (error == ENOMEM)
        return cli_report(kb_error_nomem());
    if (error != 0)
        return cli_fail(KB_ERR_HOST,
                        "cannot run the compiler '%s': %s; set CC to an installed compiler",
                        c->words.items[0], strerror(error));
    error = wait_for(child, status);
    if (error != 0)
        return cli_fail(KB_ERR_HOST, "cannot wait for the compiler: %s", strerror(error));
    return KB_OK;
}

static kb_code run_compiler(const command *c, const char *source)
{
    int status;
    kb_code code = spawn(c, NULL, &status);
    if (code != KB_OK)
        return code;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return cli_fail(KB_ERR_HOST,
                        "cannot run the compiler '%s'; set CC to an installed "
                        "compiler",
                        c->words.items[0]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return cli_fail(KB_ERR_INPUT, "compilation of %s failed", source);
    return KB_OK;
}

/* Whether the compiler is clang, by its output of --version, which goes to the file `path`. */
static kb_code detect_clang(const char *directory, const char *path, bool *is_clang)
{
    char output[512];
    command c = {.directory = directory};
    *is_clang = false;
    add_compiler(&c);
    add_word(&c, "--version", strlen("--version"));
    c.failed = c.failed || !kb_vec_push(&c.words, NULL);
    int status;
    kb_code code = spawn(&c, path, &status);
    command_fini(&c);
    FILE *file = code == KB_OK ? fopen(path, "r") : NULL;
    if (file) {
        output[fread(output, 1, sizeof output - 1, file)] = '\0';
        *is_clang = strstr(output, "clang") != NULL;
        fclose(file);
    }
    (void)unlink(path);
    return code;
}

/* Reports an unclosed parenthesis, which gcc reports at the end of the file, unlike clang. */
static void check_parens(const char *source)
{
    kb_text text = KB_TEXT_INIT;
    paren_place place;
    kb_error *err = cli_read_file(source, &text);
    if (!err && parens_find_open(kb_text_peek(&text), text.length, &place)) {
        kb_text name = KB_TEXT_INIT;
        kb_text_puts(&name, source);
        kb_text_escape_from(&name, 0);
        fprintf(stderr, "%s:%d:%d: error: this '(' is not closed: expected ')' before ';'\n",
                kb_text_peek(&name), place.line, place.column);
        kb_text_fini(&name);
    }
    kb_error_free(err);
    kb_text_fini(&text);
}

static kb_code compile(const char *source, const char *directory, const char *library)
{
    kb_text headers = KB_TEXT_INIT;
    command c = {.directory = directory};
    bool is_clang = false;
    kb_code code = find_headers(&headers);
    if (code == KB_OK)
        code = detect_clang(directory, library, &is_clang);
    if (code == KB_OK) {
        compose(&c, source, kb_text_peek(&headers), library, is_clang);
        if (!is_clang)
            check_parens(source);
        code = run_compiler(&c, source);
    }
    command_fini(&c);
    kb_text_fini(&headers);
    return code;
}

/* ---- Loading ----------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), ending = strlen(end);
    return length > ending && strcmp(text + length - ending, end) == 0;
}

/*
 * The loader reports out of memory only in its message, if at all. The list has most messages. If
 * it has no memory for a name, it reports that the library, which exists, cannot be opened, with
 * any earlier errno.
 */
static bool is_out_of_memory(const char *library, const char *why)
{
    if (!why || strcmp(why, "out of memory") == 0 || strstr(why, strerror(ENOMEM)))
        return true;
    static const char *const words[] = {"cannot create ", "cannot allocate ", "cannot extend ",
                                        "cannot map zero-fill pages"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(why, words[i]))
            return true;
    size_t length = strlen(library);
    bool names_library = strncmp(why, library, length) == 0 && why[length] == ':';
    return names_library && access(library, R_OK) == 0 &&
           (ends_with(why, "cannot open shared object file") ||
            ends_with(why, "cannot open shared object file: No such file or directory"));
}

/* Reports the message of the loader with the user's file in place of the temporary library. */
static kb_code report_load_error(const char *library, const char *file, const char *why)
{
    static const char undefined[] = "undefined symbol: ";
    if (is_out_of_memory(library, why))
        return cli_report(kb_error_nomem());
    const char *symbol = strstr(why, undefined);
    if (symbol)
        return cli_fail(KB_ERR_INPUT,
                        "%s: undefined symbol %s: neither the file nor KernBench "
                        "defines it",
                        file, symbol + strlen(undefined));
    size_t length = strlen(file); /* the loader's message may begin with it */
    if (strncmp(why, file, length) == 0 && strncmp(why + length, ": ", 2) == 0)
        why += length + 2;
    return cli_fail(KB_ERR_INPUT, "cannot load %s: %s", file, why);
}

/* Checks the version of the headers that the file was compiled with. */
static kb_code check_interface(const char *file, const char *interface)
{
    if (!interface || strcmp(interface, KB_INTERFACE) == 0)
        return KB_OK;
    return cli_fail(KB_ERR_INPUT,
                    "%s was compiled for KernBench %.20s, this is KernBench %s: recompile it", file,
                    interface, KB_INTERFACE);
}

/* Constructors of the library run here. */
static kb_code load_library(const char *library, const char *file, plugin *p)
{
    p->library = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!p->library)
        return report_load_error(library, file, dlerror());
    const char *of_collectives = dlsym(p->library, "kb_exported_ccl_interface");
    kb_code code = check_interface(file, dlsym(p->library, "kb_exported_interface"));
    if (code == KB_OK)
        code = check_interface(file, of_collectives);
    const kb_ccl_plugin *const *collectives = dlsym(p->library, "kb_exported_ccl");
    if (code == KB_OK && of_collectives && collectives)
        p->collectives = *collectives;
    return code;
}

static kb_code load(const char *library, const char *file, plugin *p)
{
    crash_note_user_file(file);
    crash_enter_user_code(file);
    kb_code code = load_library(library, file, p);
    crash_leave_user_code();
    return code;
}

/* The file has several benches, and the user did not name one. */
static kb_code report_several(const char *file, const kb_bench_spec *const *specs)
{
    const char *first = specs[0]->name;
    kb_text names = KB_TEXT_INIT;
    for (size_t i = 0; specs[i]; i++)
        kb_text_printf(&names, "%s%s", i > 0 ? ", " : "", specs[i]->name);
    kb_code code =
        cli_fail(KB_ERR_INPUT, "%s has several benches: name one, as in --bench %s:%s; it has %s",
                 file, file, first, kb_text_peek(&names));
    kb_text_fini(&names);
    return code;
}

/* `name` is NULL if none was given. */
static kb_code choose(const char *file, const char *name, plugin *p)
{
    const kb_bench_spec *const *specs = dlsym(p->library, "kb_exported_benches");
    char buffer[CLI_CLIP];
    kb_suggestion near;
    if (!specs || !dlsym(p->library, "kb_exported_interface"))
        return cli_fail(KB_ERR_INPUT,
                        "%s exports no benches: add KB_EXPORT_BENCHES() at its "
                        "end",
                        file);
    if (!specs[0])
        return cli_fail(KB_ERR_INPUT, "%s has no benches", file);
    for (size_t i = 0; specs[i]; i++)
        if (!specs[i]->name)
            return cli_fail(KB_ERR_INPUT, "%s: bench %zu has no name", file, i + 1);
    if (!name && specs[1])
        return report_several(file, specs);
    p->spec = name ? find(specs, name, &near) : specs[0];
    if (p->spec)
        return KB_OK;
    return cli_fail(KB_ERR_INPUT, "%s has no bench '%s'%s", file, cli_clip(name, buffer),
                    kb_suggestion_full(&near, ""));
}

/* A temporary directory, registered for cleanup. */
static kb_code make_directory(kb_text *directory)
{
    const char *parent = getenv("TMPDIR");
    sigset_t all, before;
    kb_text_printf(directory, "%s/kernbench-XXXXXX", parent && *parent ? parent : "/tmp");
    if (directory->failed)
        return cli_report(kb_error_nomem());
    sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    bool made = mkdtemp(directory->bytes) != NULL;
    int why = errno;
    if (made)
        (void)cleanup_add(directory->bytes, true); /* the first entry: cannot fail */
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (made)
        return KB_OK;
    return cli_fail(KB_ERR_HOST, "cannot create the directory %s: %s", directory->bytes,
                    strerror(why));
}

/* The temporary directory is removed when the library is loaded. */
static kb_code compile_and_load(const char *source, plugin *p)
{
    kb_text directory = KB_TEXT_INIT, library = KB_TEXT_INIT;
    kb_code code = make_directory(&directory);
    if (code == KB_OK) {
        kb_text_printf(&library, "%s/bench.so", directory.bytes);
        const char *path = kb_text_peek(&library);
        code =
            library.failed ? cli_report(kb_error_nomem()) : compile(source, directory.bytes, path);
        if (code == KB_OK)
            code = load(path, source, p);
        cleanup_discard(directory.bytes);
    }
    kb_text_fini(&library);
    kb_text_fini(&directory);
    return code;
}

/* dlopen() searches names without "/" in the directories of system libraries. */
static kb_code load_file(const char *file, plugin *p)
{
    kb_text path = KB_TEXT_INIT;
    kb_text_printf(&path, "%s%s", strchr(file, '/') ? "" : "./", file);
    kb_code code = path.failed ? cli_report(kb_error_nomem()) : load(kb_text_peek(&path), file, p);
    kb_text_fini(&path);
    return code;
}

/* `kinds`: the message for other kinds of files. */
static kb_code open_file(const char *file, const char *kinds, plugin *p)
{
    struct stat status;
    if (access(file, R_OK) != 0 || stat(file, &status) != 0)
        return cli_fail(KB_ERR_INPUT, "cannot read %s: %s", file, strerror(errno));
    bool is_source = ends_with(file, ".c"), is_library = ends_with(file, ".so");
    if ((is_source || is_library) && S_ISDIR(status.st_mode))
        return cli_fail(KB_ERR_INPUT, "cannot read %s: %s", file, strerror(EISDIR));
    if (is_source)
        return compile_and_load(file, p);
    if (is_library)
        return load_file(file, p);
    return cli_fail(KB_ERR_INPUT, "%s: %s", file, kinds);
}

/* ---- Opening ---------------------------------------------------------------------------- */

/* The name of the bench after ".c:" or ".so:"; NULL if there is none. */
static const char *find_name(const char *what)
{
    const char *colon = strrchr(what, ':');
    if (!colon || strchr(colon, '/'))
        return NULL;
    size_t length = (size_t)(colon - what);
    bool source = length > 2 && memcmp(colon - 2, ".c", 2) == 0;
    bool library = length > 3 && memcmp(colon - 3, ".so", 3) == 0;
    return source || library ? colon + 1 : NULL;
}

kb_code plugin_open(const char *what, plugin *p)
{
    *p = (plugin){.spec = embedded_bench()};
    if (p->spec)
        return KB_OK;
    const char *name = find_name(what);
    if (!name && !strchr(what, '/') && !ends_with(what, ".c") && !ends_with(what, ".so"))
        return find_builtin(what, p);
    char *file = name ? strndup(what, (size_t)(name - 1 - what)) : strdup(what);
    if (!file)
        return cli_report(kb_error_nomem());
    kb_code code = open_file(file, "not a bench: expected a name, a FILE.c or a FILE.so", p);
    if (code == KB_OK) {
        crash_enter_user_code(file); /* its tables may be corrupt */
        code = choose(file, name, p);
        crash_leave_user_code();
    }
    free(file);
    return code;
}

kb_code plugin_open_collectives(const char *file, plugin *p)
{
    *p = (plugin){0};
    kb_code code = open_file(file, "not a plugin: expected a FILE.c or a FILE.so", p);
    if (code == KB_OK && !p->collectives)
        code = cli_fail(KB_ERR_INPUT,
                        "%s exports no collectives: add KB_EXPORT_CCL() at its "
                        "end",
                        file);
    return code;
}
