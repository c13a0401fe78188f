#include "mpmd/graph_words.hpp"

namespace manyworlds::inline v0 {

std::string_view name_of(edge_kind kind) noexcept { return detail::word_of(kind); }
std::string_view name_of(edge_shape shape) noexcept { return detail::word_of(shape); }
std::string_view name_of(edge_loss loss) noexcept { return detail::word_of(loss); }
std::string_view name_of(place_rule rule) noexcept { return detail::word_of(rule); }
std::string_view name_of(place_level level) noexcept { return detail::word_of(level); }
std::string_view name_of(role_kind kind) noexcept { return detail::word_of(kind); }
std::string_view name_of(ready_when when) noexcept { return detail::word_of(when); }

}  // namespace manyworlds::inline v0
