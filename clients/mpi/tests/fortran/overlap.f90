! Do Fortran programs get atomic mode too? All ranks write their number into the same noncontiguous bytes at once; whatever
! the order, all bytes must be of one rank. By `use mpi_f08`, which goes a way of its own through some libraries.
!
!     overlap FILE ROUNDS      prints "torn T of R rounds"
program overlap
    use mpi_f08
    implicit none
    integer, parameter :: pieces = 48, piece = 64, stride = 96
    type(MPI_File) :: file
    type(MPI_Datatype) :: comb
    type(MPI_Status) :: status
    integer(kind=MPI_OFFSET_KIND), parameter :: start = 0
    character(len=1024) :: path, text
    character(len=1) :: mine(pieces * piece), got(pieces * piece)
    integer :: rank, rounds, round, torn, bytes
    logical :: flag

    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call get_command_argument(1, path)
    call get_command_argument(2, text)
    read (text, *) rounds
    call MPI_File_open(MPI_COMM_WORLD, trim(path), ior(MPI_MODE_CREATE, MPI_MODE_RDWR), MPI_INFO_NULL, file)
    call MPI_File_set_atomicity(file, .true.)
    call MPI_File_get_atomicity(file, flag)
    if (.not. flag) call fail("atomic mode reads as off")
    call MPI_Type_vector(pieces, piece, stride, MPI_BYTE, comb)
    call MPI_Type_commit(comb)
    call MPI_File_set_view(file, start, MPI_BYTE, comb, "native", MPI_INFO_NULL)
    mine = char(rank + 1)
    torn = 0
    do round = 1, rounds
        call MPI_Barrier(MPI_COMM_WORLD)
        call MPI_File_write_at(file, start, mine, size(mine), MPI_BYTE, status)
        call MPI_Get_count(status, MPI_BYTE, bytes)
        if (bytes /= size(mine)) call fail("a status says too little")
        call MPI_Barrier(MPI_COMM_WORLD)
        call MPI_File_read_at_all(file, start, got, size(got), MPI_BYTE, MPI_STATUS_IGNORE)
        if (any(got /= got(1))) torn = torn + 1
    end do
    call MPI_File_close(file)
    if (rank == 0) print '("torn ", i0, " of ", i0, " rounds")', torn, rounds
    call MPI_Finalize()

contains

    subroutine fail(why)
        character(len=*), intent(in) :: why
        print '("FAILED: ", a)', why
        call MPI_Abort(MPI_COMM_WORLD, 1)
    end subroutine
end program
