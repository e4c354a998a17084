//! The value of `$(( … ))`.

/// Maximum nesting of parentheses and signs.
const DEEPEST: usize = 16;

/// The value of an expression of numbers and variables with `+ - * / %` and parentheses; `None` if
/// it has anything else, or a variable that `value_of` does not know.
pub(super) fn value<'t>(text: &'t str, value_of: &mut dyn FnMut(&'t str) -> Option<i64>) -> Option<i64> {
    let mut expression = Expression { rest: text, value_of, depth: 0 };
    let value = expression.sum()?;
    expression.rest.trim_start().is_empty().then_some(value)
}

struct Expression<'t, 'f> {
    rest: &'t str,
    value_of: &'f mut dyn FnMut(&'t str) -> Option<i64>,
    depth: usize,
}

impl<'t> Expression<'t, '_> {
    fn sum(&mut self) -> Option<i64> {
        let mut sum = self.product()?;
        loop {
            sum = match self.sign(&['+', '-']) {
                Some('+') => sum.checked_add(self.product()?)?,
                Some(_) => sum.checked_sub(self.product()?)?,
                None => return Some(sum),
            };
        }
    }

    fn product(&mut self) -> Option<i64> {
        let mut product = self.operand()?;
        loop {
            product = match self.sign(&['*', '/', '%']) {
                Some('*') => product.checked_mul(self.operand()?)?,
                Some('/') => product.checked_div(self.operand()?)?,
                Some(_) => product.checked_rem(self.operand()?)?,
                None => return Some(product),
            };
        }
    }

    fn operand(&mut self) -> Option<i64> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let value = match self.sign(&['-', '+', '(']) {
            Some('-') => self.operand()?.checked_neg(),
            Some('+') => self.operand(),
            Some(_) => {
                let inner = self.sum()?;
                self.sign(&[')']).map(|_| inner)
            }
            None => self.name_or_number(),
        };
        self.depth -= 1;
        value
    }

    fn name_or_number(&mut self) -> Option<i64> {
        let rest = self.rest.trim_start();
        // `${NAME:-4}` is read as one name.
        let (word, after) = match rest.strip_prefix("${").and_then(|inside| inside.split_once('}')) {
            Some((inside, after)) => (inside, after),
            None => {
                let bare = rest.strip_prefix('$').unwrap_or(rest);
                bare.split_at(
                    bare.find(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric()).unwrap_or(bare.len()),
                )
            }
        };
        self.rest = after;
        let (name, default) = word.split_once(":-").map_or((word, None), |(name, default)| (name, Some(default)));
        if name.starts_with(|first: char| first.is_ascii_digit()) {
            // A leading zero means another base.
            let is_decimal = name == "0" || !name.starts_with('0');
            return name.parse().ok().filter(|_| is_decimal);
        }
        (self.value_of)(name).or_else(|| default?.trim().parse().ok())
    }

    /// Takes a sign, if it is the next one. `**`, `<<` and the like are none.
    fn sign(&mut self, signs: &[char]) -> Option<char> {
        let rest = self.rest.trim_start();
        let sign = rest.chars().next().filter(|sign| signs.contains(sign))?;
        let after = rest.get(sign.len_utf8()..)?;
        let is_double = matches!(sign, '*' | '+' | '-') && after.starts_with(sign);
        if is_double || (matches!(sign, '*' | '/' | '%' | '+' | '-') && after.starts_with('=')) {
            return None;
        }
        self.rest = after;
        Some(sign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_and_known_variables_are_calculated() {
        for (text, expected) in [
            ("N*2", Some(8)),
            (" $N * (2 + 1) - 1 ", Some(11)),
            ("${N} / 3 + 10 % 4", Some(3)),
            ("-N + ${M:-6}", Some(2)),
            ("2 + 3 * 4", Some(14)),
            ("M * 2", None),
            ("N / 0", None),
            ("N ** 2", None),
            ("N << 1", None),
            ("N++", None),
            ("010", None),
            ("N > 2 ? 1 : 0", None),
            ("(N", None),
            ("", None),
        ] {
            assert_eq!(value(text, &mut |name| (name == "N").then_some(4)), expected, "{text}");
        }
        assert_eq!(value(&"(".repeat(10_000), &mut |_| None), None);
        assert_eq!(value("9223372036854775807 + 1", &mut |_| None), None);
    }
}
