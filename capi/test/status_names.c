/* status_names.c: prints the name of every status from -1 on, one more than
 * there are on either side; the Go test compares them with the table. */
#include "check.h"

int main(void) {
  for (shunt_status s = -1; s <= SHUNT_INTERNAL + 1; s++)
    printf("%s\n", shunt_status_string(s));
  return 0;
}
