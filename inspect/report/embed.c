/* Writes a file as a C string, for data that a library carries with it.
 * Usage: embed FILE NAME >NAME.c */
#include <stdio.h>

int main(int argc, char **argv)
{
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (!file) return fprintf(stderr, "embed: %s cannot be read\n", argc > 1 ? argv[1] : "?"), 1;
    printf("extern const char %s[];\nconst char %s[] = {", argv[2], argv[2]);
    /* A byte above 127 does not fit every char. */
    for (int c, n = 0; (c = getc(file)) != EOF; n++)
        printf(c < 128 ? "%s%d," : "%s'\\%o',", n % 20 ? "" : "\n", c);
    printf("0};\n");
    int failed = ferror(file) || fflush(stdout) != 0 || ferror(stdout);
    fclose(file);
    return failed;
}
