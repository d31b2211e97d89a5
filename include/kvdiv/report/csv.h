#pragma once
// Tidy tables of a result, one file a type of record, that pandas and R read in one line.
#include <filesystem>

namespace kvdiv {

/// Writes <type>.csv for each type of record in records.jsonl (step.csv, pair.csv, layer.csv, …) and conditions.csv for
/// the conditions of report.json. Makes the directory; files of these names in it are replaced, in one step each.
///
/// Comma-separated with one header line, in UTF-8, lines ended by "\n"; a field with a comma, a quote or a line break
/// is in quotes (RFC 4180). Null is an empty field, an empty text is "" in quotes; true and false are TRUE and FALSE,
/// which both programs read. A list is its JSON in one field; members of an object are columns of their own, "a.b",
/// empty where the object is null. Zero bytes in texts are left out: neither program reads on behind one. (Both read
/// a text "NA" as a missing one unless told otherwise: keep_default_na=False, na.strings="".)
/// conditions.csv: one line a condition, its lists left out. The records are read twice; memory does not depend on
/// their number. Throws Error{unreadable} for a result that cannot be read, and for a path that cannot be written.
void write_csv(const std::filesystem::path& result, const std::filesystem::path& directory);

}  // namespace kvdiv
