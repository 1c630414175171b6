! Do Fortran programs get atomic mode too? All ranks write their number into the same noncontiguous bytes at once; whatever
! the order, all bytes must be of one rank. By `use mpi`, the older interface.
!
!     overlap FILE ROUNDS      prints "torn T of R rounds"
program overlap_mpi
    use mpi
    implicit none
    integer, parameter :: pieces = 48, piece = 64, stride = 96
    integer :: file, code
    integer :: comb
    integer :: status(MPI_STATUS_SIZE)
    integer(kind=MPI_OFFSET_KIND), parameter :: start = 0
    character(len=1024) :: path, text
    character(len=1) :: mine(pieces * piece), got(pieces * piece)
    integer :: rank, rounds, round, torn, bytes
    logical :: flag

    call MPI_Init(code)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
    call get_command_argument(1, path)
    call get_command_argument(2, text)
    read (text, *) rounds
    call MPI_File_open(MPI_COMM_WORLD, trim(path), ior(MPI_MODE_CREATE, MPI_MODE_RDWR), MPI_INFO_NULL, file, code)
    call MPI_File_set_atomicity(file, .true., code)
    call MPI_File_get_atomicity(file, flag, code)
    if (.not. flag) call fail("atomic mode reads as off")
    call MPI_Type_vector(pieces, piece, stride, MPI_BYTE, comb, code)
    call MPI_Type_commit(comb, code)
    call MPI_File_set_view(file, start, MPI_BYTE, comb, "native", MPI_INFO_NULL, code)
    mine = char(rank + 1)
    torn = 0
    do round = 1, rounds
        call MPI_Barrier(MPI_COMM_WORLD, code)
        call MPI_File_write_at(file, start, mine, size(mine), MPI_BYTE, status, code)
        call MPI_Get_count(status, MPI_BYTE, bytes, code)
        if (bytes /= size(mine)) call fail("a status says too little")
        call MPI_Barrier(MPI_COMM_WORLD, code)
        call MPI_File_read_at_all(file, start, got, size(got), MPI_BYTE, MPI_STATUS_IGNORE, code)
        if (any(got /= got(1))) torn = torn + 1
    end do
    call MPI_File_close(file, code)
    if (rank == 0) print '("torn ", i0, " of ", i0, " rounds")', torn, rounds
    call MPI_Finalize(code)

contains

    subroutine fail(why)
        character(len=*), intent(in) :: why
        print '("FAILED: ", a)', why
        call MPI_Abort(MPI_COMM_WORLD, 1, code)
    end subroutine
end program
