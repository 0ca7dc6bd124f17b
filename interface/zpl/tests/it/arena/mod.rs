//! What programs find when the process that served their file system was killed, and the next one took over what was not on disk. If these fail,
//! programs that go on miss changes that they were told of, find half of one, or a power cut takes what they had made durable.

mod bed;
mod kills;
mod life;
mod steps;
