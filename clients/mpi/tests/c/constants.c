/* Prints what the installed mpi.h says of everything that src/abi.rs holds as numbers; tests/abi.rs compares. No MPI call. */
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define NUMBER(name) printf(#name " %lld\n", (long long)(intptr_t)(name))

int main(void) {
    printf("HANDLE_BYTES %zu\n", sizeof(MPI_Datatype));
    printf("STATUS_BYTES %zu\n", sizeof(MPI_Status));
    printf("OFFSET_BYTES %zu\n", sizeof(MPI_Offset));
    printf("AINT_BYTES %zu\n", sizeof(MPI_Aint));
    printf("COUNT_BYTES %zu\n", sizeof(MPI_Count));
    printf("FILE_BYTES %zu\n", sizeof(MPI_File));
    NUMBER(MPI_STATUS_IGNORE);
    NUMBER(MPI_SEEK_SET);
    NUMBER(MPI_MODE_RDWR);
    NUMBER(MPI_MODE_UNIQUE_OPEN);
#ifndef OPEN_MPI /* there they are addresses of variables */
    NUMBER(MPI_BYTE);
    NUMBER(MPI_DATATYPE_NULL);
    NUMBER(MPI_INFO_NULL);
    NUMBER(MPI_COMM_NULL);
    NUMBER(MPI_COMM_WORLD);
#endif
    NUMBER(MPI_ERR_ARG);
    NUMBER(MPI_ERR_COUNT);
    NUMBER(MPI_ERR_TYPE);
    NUMBER(MPI_ERR_IO);
    NUMBER(MPI_ERR_OTHER);
    NUMBER(MPI_ERR_UNSUPPORTED_DATAREP);
    NUMBER(MPI_ERR_UNSUPPORTED_OPERATION);
    NUMBER(MPI_ORDER_C);
    NUMBER(MPI_ORDER_FORTRAN);
    NUMBER(MPI_DISTRIBUTE_BLOCK);
    NUMBER(MPI_DISTRIBUTE_CYCLIC);
    NUMBER(MPI_DISTRIBUTE_NONE);
    NUMBER(MPI_DISTRIBUTE_DFLT_DARG);
    NUMBER(MPI_COMBINER_NAMED);
    NUMBER(MPI_COMBINER_DUP);
    NUMBER(MPI_COMBINER_CONTIGUOUS);
    NUMBER(MPI_COMBINER_VECTOR);
    NUMBER(MPI_COMBINER_HVECTOR);
    NUMBER(MPI_COMBINER_INDEXED);
    NUMBER(MPI_COMBINER_HINDEXED);
    NUMBER(MPI_COMBINER_INDEXED_BLOCK);
    NUMBER(MPI_COMBINER_HINDEXED_BLOCK);
    NUMBER(MPI_COMBINER_STRUCT);
    NUMBER(MPI_COMBINER_SUBARRAY);
    NUMBER(MPI_COMBINER_DARRAY);
    NUMBER(MPI_COMBINER_RESIZED);
    NUMBER(MPI_COMBINER_F90_REAL);
    NUMBER(MPI_COMBINER_F90_COMPLEX);
    NUMBER(MPI_COMBINER_F90_INTEGER);
    NUMBER(MPI_MAX_ERROR_STRING);
    NUMBER(MPI_MAX_DATAREP_STRING);
    return 0;
}
