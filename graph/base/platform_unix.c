/* What POSIX and WASI have in common: see platform.h. */
#include "platform.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Memory ---- */

void *weft__os_memory(size_t alignment, size_t bytes)
{
    return aligned_alloc(alignment, bytes);
}

void weft__os_memory_free(void *memory)
{
    free(memory);
}

/* ---- Files ---- */

static bool set_facts(int failed, const struct stat *info, os_facts *facts)
{
    if (failed) return false;
    facts->kind = S_ISREG(info->st_mode) ? OS_FILE : S_ISDIR(info->st_mode) ? OS_FOLDER : OS_DEVICE;
    facts->bytes = (uint64_t)info->st_size;
    return true;
}

bool weft__os_facts(const char *path, os_facts *facts)
{
    struct stat info;
    return set_facts(stat(path, &info), &info, facts);
}

bool weft__os_facts_of(int descriptor, os_facts *facts)
{
    struct stat info;
    return set_facts(fstat(descriptor, &info), &info, facts);
}

bool weft__os_close(int descriptor)
{
    return close(descriptor) == 0;
}

ptrdiff_t weft__os_read_line(char **line, size_t *capacity, FILE *file)
{
    return getline(line, capacity, file);
}

bool weft__os_sync(int descriptor)
{
    return fsync(descriptor) == 0;
}

bool weft__os_rename(const char *from, const char *to)
{
    return rename(from, to) == 0;
}

bool weft__os_link(const char *from, const char *to)
{
    return link(from, to) == 0;
}

bool weft__os_remove(const char *path)
{
    return unlink(path) == 0;
}

bool weft__os_make_folder(const char *path)
{
    return mkdir(path, 0777) == 0;
}

bool weft__os_list(const char *folder, void (*take)(void *, const char *), void *context)
{
    DIR *entries = opendir(folder);
    if (!entries) return false;
    for (const struct dirent *e = readdir(entries); e; e = readdir(entries))
        take(context, e->d_name);
    closedir(entries);
    return true;
}

bool weft__os_is_same(const char *a, const char *b)
{
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

bool weft__os_current_folder(char *path, size_t size)
{
    return getcwd(path, size) != NULL;
}

const char *weft__os_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool weft__os_is_separator(char c)
{
    return c == '/';
}

bool weft__os_is_absolute(const char *path)
{
    return path[0] == '/';
}

/* ---- The process ---- */

void weft__os_set_variable(const char *name, const char *text)
{
    if (text)
        setenv(name, text, 1);
    else
        unsetenv(name);
}
