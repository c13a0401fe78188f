// Registration: where faults that are done to a world find it, while it is talked in.
#pragma once

#include <map>
#include <string>

#include "manyworlds/world/world.hpp"

namespace manyworlds_tests {

namespace mw = manyworlds;

class registration {
 public:
  registration(std::map<std::string, mw::world*>& worlds, const std::string& name,
               mw::world& w)
      : worlds_(worlds), name_(name), world_(w) {
    worlds_[name] = &w;
  }
  registration(const registration&) = delete;
  registration& operator=(const registration&) = delete;
  /// Unless another epoch stands there by now.
  ~registration() {
    const auto mine = worlds_.find(name_);
    if (mine != worlds_.end() && mine->second == &world_) worlds_.erase(mine);
  }

 private:
  std::map<std::string, mw::world*>& worlds_;
  const std::string& name_;
  mw::world& world_;
};

}  // namespace manyworlds_tests
