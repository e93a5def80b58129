/* The variables of the environment, for those who may use them.
 *
 * Thread rule: any thread; but nobody may change the environment meanwhile.
 */
#ifndef CPROF_ENVIRONMENT_H
#define CPROF_ENVIRONMENT_H

#include <stdbool.h>

/* Whether variables may make this program do things. They may not where it has rights that its caller need not have, as a
 * set-user-ID program, nor after cprof_environment_distrust(). */
bool cprof_environment_is_trusted(void);

/* Has variables ignored from now on. */
void cprof_environment_distrust(void);

/* Returns a variable. NULL: it is not set, or the environment is not trusted. */
const char *cprof_environment_get(const char *name);

#endif
