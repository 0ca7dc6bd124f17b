//! Records of the format, judged by golden images, by damaged ones and by a snapshot of their layout. One program: each file of tests by itself would be linked with all that is below.

mod golden;
mod hostile;
mod layout;
