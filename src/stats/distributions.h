#pragma once
// The normal and Student's t distribution. Tails are computed as such, so that a p of 1e-60 keeps all its digits.

namespace kvdiv {

/// P(Z > z) and its inverse in the lower tail, P(Z ≤ normal_quantile(p)) = p; ±inf for p = 0 and 1.
double normal_upper(double z);
double normal_cdf(double z);
double normal_quantile(double p);

/// The same of Student's t with df > 0 degrees of freedom, which need not be whole.
double student_upper(double t, double df);
double student_quantile(double p, double df);

}  // namespace kvdiv
