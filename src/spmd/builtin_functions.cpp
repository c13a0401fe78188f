#include "spmd/builtin_functions.hpp"

#include <utility>

namespace manyworlds::inline v0::detail {

const function_table& builtin_functions() {
  static const function_table all{
      {put_function, [](tensor given) { return given; }},
      {empty_function, [](shape of, dtype type) { return tensor::zeros(of, type); }},
      {copy_function,
       [](const tensor& from) { return tensor::copy_of(from.view(), from.shape()); }},
  };
  return all;
}

}  // namespace manyworlds::inline v0::detail
