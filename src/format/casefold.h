/* SPDX-License-Identifier: MIT */
/*
 * Folding of names in casefolded directories (utf8, by libutf8proc): canonical decomposition and
 * case folding, ignorable characters dropped.
 */
#ifndef UEXT4_FORMAT_CASEFOLD_H
#define UEXT4_FORMAT_CASEFOLD_H

#include <stddef.h>

/*
 * Folds a name into `buffer`. Returns the length, -EINVAL for a name that is not valid utf8, or
 * -ENAMETOOLONG if it does not fit. Names that fold to the same bytes are equal.
 */
int casefold_name(const char *name, size_t length, char *buffer, size_t size);

#endif
