// What every file here begins with; precompiled.
#include <functional>
#include <list>
#include <manyworlds/interop/resume_on.hpp>
#include <manyworlds/mw.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace std::chrono_literals;
