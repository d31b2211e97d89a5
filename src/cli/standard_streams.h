#pragma once
// The three streams that a process is born with, as they are when it was born without them, or on a full disk.

namespace kvdiv {

/// A closed descriptor 0, 1 or 2 would be the number of the next file opened, and what is printed would land in a result.
/// Call before any file is opened.
void open_standard_streams();

/// What was printed has arrived. Throws Error{unreadable} if stdout cannot be written (closed, a full disk).
void flush_stdout();

}  // namespace kvdiv
