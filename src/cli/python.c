/*
 * python.c: `kernbench run --bench ./mine.py`: the program becomes Python, with the package of the
 * same installation or build, which has all commands of the program in it.
 */
#include "python.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), ending = strlen(end);
    return length > ending && strcmp(text + length - ending, end) == 0;
}

/* The file of the bench; NULL if it is none of Python. */
static const char *find_bench(int argc, char **argv)
{
    static const char option[] = "--bench";
    const char *found = NULL;
    if (argc < 2 || strcmp(argv[1], "run") != 0)
        return NULL;
    for (int i = 2; i < argc; i++) {
        size_t length = strlen(option);
        if (strcmp(argv[i], option) == 0 && i + 1 < argc)
            found = argv[++i];
        else if (strncmp(argv[i], option, length) == 0 && argv[i][length] == '=')
            found = argv[i] + length + 1;
    }
    return found && ends_with(found, ".py") ? found : NULL;
}

/* Appends the directory of this program, with "/"; nothing if the system does not tell. */
static void append_own_directory(kb_text *path)
{
    char link[4096];
    ssize_t length = readlink("/proc/self/exe", link, sizeof link - 1);
    if (length <= 0)
        return;
    link[length] = '\0';
    kb_text_append(path, link, (size_t)(strrchr(link, '/') + 1 - link));
}

/* Puts a folder before those of PYTHONPATH. */
static bool add_to_path(const char *folder)
{
    const char *before = getenv("PYTHONPATH");
    kb_text path = KB_TEXT_INIT;
    kb_text_printf(&path, "%s%s%s", folder, before && *before ? ":" : "", before ? before : "");
    bool good = !path.failed && setenv("PYTHONPATH", kb_text_peek(&path), 1) == 0;
    kb_text_fini(&path);
    return good;
}

/* The package that is installed with the program, or that of the build directory. */
static bool set_environment(void)
{
    kb_text installed = KB_TEXT_INIT, build = KB_TEXT_INIT, package = KB_TEXT_INIT;
    append_own_directory(&installed);
    kb_text_puts(&installed, KB_INSTALLED_PYTHON);
    append_own_directory(&build);
    kb_text_puts(&build, "python");
    kb_text_printf(&package, "%s/kernbench/__init__.py", kb_text_peek(&installed));
    bool good = !installed.failed && !build.failed && !package.failed;
    if (good && access(kb_text_peek(&package), R_OK) == 0)
        good = add_to_path(kb_text_peek(&installed));
    else if (good)
        good =
            add_to_path(KB_BUILD_PYTHON) && setenv("KB_PYTHON_BUILD", kb_text_peek(&build), 1) == 0;
    kb_text_fini(&package);
    kb_text_fini(&build);
    kb_text_fini(&installed);
    return good;
}

/* Returns only if it cannot be. */
static kb_error *become_python(int argc, char **argv)
{
    const char *chosen = getenv("KERNBENCH_PYTHON");
    const char *python = chosen && *chosen ? chosen : KB_PYTHON_EXECUTABLE;
    char **words = kb_alloc_zeroed((size_t)argc + 3, sizeof *words);
    if (!words || !set_environment()) {
        free(words);
        return kb_error_nomem();
    }
    words[0] = (char *)(uintptr_t)python;
    words[1] = (char *)(uintptr_t) "-m";
    words[2] = (char *)(uintptr_t) "kernbench";
    memcpy(words + 3, argv + 1, (size_t)(argc - 1) * sizeof *words);
    execv(python, words);
    free(words);
    return kb_error_new(KB_ERR_HOST, "cannot run %s: %s; benches in Python need python3", python,
                        strerror(errno));
}

void python_take_over(int argc, char **argv)
{
    if (!find_bench(argc, argv))
        return;
    exit((int)cli_report(become_python(argc, argv)));
}
