/* The Debian build of PnetCDF asks for the C++ bindings of Open MPI 4, which Open MPI 5 has no more.
 * Its C functions never call them; these stand in, under the name libmpi_cxx.so.40, and end the
 * program if that should be wrong. No part of outcore. */
#include <stdlib.h>

void _ZN3MPI3Win4FreeEv(void) { abort(); }
void _ZN3MPI4CommC2Ev(void) { abort(); }
void _ZN3MPI8Datatype4FreeEv(void) { abort(); }
void ompi_mpi_cxx_op_intercept(void) { abort(); }
void ompi_op_set_cxx_callback(void) { abort(); }
