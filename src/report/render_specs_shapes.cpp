// Tables of `shapes`.
#include "render_specs.h"

namespace kvdiv {

std::vector<TableSpec> shapes_tables() {
  return {{"the same row in other company: from which number on its bits change (–: none up to the last tried)",
           "shapes",
           {{"operation", "operation", Cell::text},
            {"of a row", "shape", Cell::text},
            {"axis", "axis", Cell::text},
            {"changes from", "onset", Cell::text},
            {"up to", "last", Cell::count},
            {"max ULP there", "max_ulp"},
            {"tried", "n_probed", Cell::count},
            {"differ", "n_differing_probed", Cell::count},
            {"all from there on", "monotone", Cell::text}}}};
}

}  // namespace kvdiv
