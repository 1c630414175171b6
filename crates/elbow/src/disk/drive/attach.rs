//! `elbow disk attach`: a drive of the model in real time.

use std::process::ExitCode;

use anyhow::Result;

use super::options::AttachArgs;
use super::server;
use crate::attached::server::start;

pub(crate) const EXAMPLES: &str = "\
Examples:
  A block device (as root): make a file system on it, and use that:
      DEVICE=$(elbow disk attach --model generic-7200 --backing disk.img)
      mkfs.ext4 $DEVICE && mount $DEVICE /mnt

  A file, without root: whatever opens it reads and writes the drive:
      elbow disk attach --model hp-c2247a --backing disk.img --file disk

  For qemu, libnbd, fio and nbd-client:
      elbow disk attach --backing disk.img --size 1G --nbd unix:disk.sock
      qemu-img info nbd+unix:///?socket=disk.sock

  What a database asks of its disk, and how long that takes on another:
      DEVICE=$(elbow disk attach --backing disk.img --log asked.csv)
      elbow disk replay --disk atlas10k --format csv asked.csv

  What it has done, how late it was, and what is left when the power goes:
      elbow disk status $DEVICE
      elbow disk powercut $DEVICE --torn
      elbow disk detach $DEVICE

It prints the device, and goes on in the background. Reads, writes and flushes are answered at the moment that the model says; how late the \
answers were is counted, since a busy machine is late.

What was written and not flushed is in the drive's memory: a power cut, or kill -9, loses it. Flushed is what fsync(2) of the file or the \
device has returned for, or forced unit access has asked for. The backing file is as safe as a file that is not synced; detach syncs it.

With --cache write-back, a drive whose description has no write cache is given one of its segments. To what is between the program and the drive \
no time is given: it takes what it takes, about 0.05 ms.";

/// Starts the server, and prints what the drive is called.
pub(in crate::disk) fn run(args: &AttachArgs) -> Result<ExitCode> {
    start(&args.offer, || server::run(args))
}
