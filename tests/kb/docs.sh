#!/bin/sh
# docs.sh: what tools/doxygen-filter makes of comments, each kind in a header of its own.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=../check.sh
. "$here/../check.sh"
filter=$here/../../tools/doxygen-filter

# becomes FILE: what is before the line ==== on stdin, as FILE, becomes what is after it.
becomes() {
    awk -v in_file="$scratch/$1" -v out_file="$scratch/want" '
        BEGIN { printf "" >in_file; printf "" >out_file }
        $0 == "====" { after = 1; next }
        { print >(after ? out_file : in_file) }'
    "$filter" "$scratch/$1" >"$scratch/got" && diff "$scratch/want" "$scratch/got"
}

check "the first comment is the file's" becomes some.h <<'EOT'
/*
 * some.h: things.
 *
 * More of them.
 */
#ifndef SOME_H
====
/** \file
 * things.
 *
 * More of them.
 */
#ifndef SOME_H
EOT

check "a comment describes what follows" becomes some.h <<'EOT'
/* some.h: things. */

/* One line. */
int a;

/*
 * Two
 * lines.
 */
KB_API int f(int a,
             int b);
struct s {
    /* Inside. */
    int x;
};
====
/** \file
 * things. */

/** One line. */
int a;

/** @{ */ /**
 * Two
 * lines.
 */
KB_API int f(int a,
             int b);
struct s {
    /** Inside. */
    int x;
};
/** @} */
EOT

check "a comment above several is for each" becomes some.h <<'EOT'
/* some.h: things. */
/* Both. */
int a;
int b;

int c;
====
/** \file
 * things. */
/** @{ */ /** Both. */
int a;
int b;
/** @} */
int c;
EOT

check "a comment behind a declaration is its own" becomes some.h <<'EOT'
/* some.h: things. */
int a; /* that */
struct s {
    uint32_t x, y; /* each of them */
    int z; /* goes on
              and on */
};
#define LONG /* not this */ \
    1
====
/** \file
 * things. */
int a; /**< that */
struct s {
    uint32_t x; /**< each of them */    uint32_t y; /**< each of them */

    int z; /**< goes on and on */
};
#define LONG /* not this */ \
    1
EOT

check "banners make groups, and groups of groups" becomes some.h <<'EOT'
/* some.h: things. */

/* ---- Early ---- */

int a;

/* ==== All the rest ==== */

/* ---- One's own: part 2 ---- */

int b;
====
/** \file
 * things. */

/** \defgroup some_early Early
 * */ /** @{ */
int a;

/** @} */ /** \defgroup some_all_the_rest All the rest
 * */ /** @{ */
/** @} */ /** \defgroup some_one_s_own_part_2 One's own: part 2
 * \ingroup some_all_the_rest */ /** @{ */
int b;
/** @} */
EOT

check "a comment alone belongs to its group, or to nobody" becomes some.h <<'EOT'
/* some.h: things. */

/* Nobody's. */

/* ---- Group ---- */

/*
 * Of the group.
 */

/* Of a. */
int a;
====
/** \file
 * things. */

/* Nobody's. */

/** \defgroup some_group Group
 * */ /** @{ */
/** @} */ /** \addtogroup some_group
 * Of the group.
 */
/** @{ */
/** Of a. */
int a;
/** @} */
EOT

check "indented lines are code, and stay as they are" becomes some.h <<'EOT'
/* some.h: things. */
/*
 * Call it <so> & "so", 100%, `a < b`, \n, me@there, #1:
 *
 *     f("\n", &x < 1);
 *
 *         deeper
 *
 * Then:
 *
 *     g();
 */
int a;
====
/** \file
 * things. */
/**
 * Call it \<so\> \& "so", 100\%, `a < b`, \\n, me\@there, \#1:
 * @code{.c}
 * f("\n", &x < 1);
 *
 *     deeper
 * @endcode
 * Then:
 * @code{.c}
 * g();
 * @endcode */
int a;
EOT

check "bodies and attributes are not for readers" becomes some.h <<'EOT'
/* some.h: things. */
#define KB_API __attribute__((visibility("default")))
#define KB_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
/* Doubles. */
static inline int f(int a)
{
    int b = a; /* why */
    /* because */
    return a + b;
}
====
/** \file
 * things. */


/** Doubles. */
static inline int f(int a)
{
    int b = a; /* why */
    /* because */
    return a + b;
}
EOT

check "of an example the first comment is kept" becomes some.c <<'EOT'
/*
 * some.c: things.
 *
 * It prints:
 *
 *     if 5
 */
#include <stdio.h>
int main(void);
====
/** \example some.c
 * \details
 * things.
 *
 * It prints:
 * @code{.unparsed}
 * if 5
 * @endcode */
EOT

for header in "$here"/../../include/kernbench/*.h; do
    check "$(basename "$header"): lines stay where they are" \
        test "$("$filter" "$header" | grep -n '^#endif$' | tail -n 1)" = \
        "$(grep -n '^#endif$' "$header" | tail -n 1)"
done

finish
