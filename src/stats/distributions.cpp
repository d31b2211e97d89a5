#include "distributions.h"

#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>

#include "quiet.h"

namespace kvdiv {
namespace {

namespace bm = boost::math;
using Normal = bm::normal_distribution<double, Quiet>;
using Student = bm::students_t_distribution<double, Quiet>;

}  // namespace

double normal_upper(double z) { return bm::cdf(bm::complement(Normal(), z)); }
double normal_cdf(double z) { return bm::cdf(Normal(), z); }
double normal_quantile(double p) { return bm::quantile(Normal(), p); }
double student_upper(double t, double df) { return bm::cdf(bm::complement(Student(df), t)); }
double student_quantile(double p, double df) { return bm::quantile(Student(df), p); }

}  // namespace kvdiv
