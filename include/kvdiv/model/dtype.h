#pragma once
#include <c10/core/ScalarType.h>

#include "kvdiv/base/enums.h"

namespace kvdiv {

constexpr c10::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return c10::ScalarType::Half;
    case DType::bfloat16:
      return c10::ScalarType::BFloat16;
    case DType::float32:
      return c10::ScalarType::Float;
    case DType::float64:
      return c10::ScalarType::Double;
  }
  return c10::ScalarType::Undefined;
}

}  // namespace kvdiv
