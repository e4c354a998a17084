//! Integers of a program: literals, names of constants, and arithmetic with them.

use tree_sitter::Node;

use super::{names::PythonNames, nodes::named_children};

/// Maximum nesting of an expression.
const DEEPEST: usize = 12;

/// The largest exponent that is computed.
const LARGEST_EXPONENT: i64 = 63;

/// The value of an expression, if it is an integer that the text decides.
pub fn integer<'t>(text: &'t str, names: &PythonNames<'t>, node: Node<'t>, depth: usize) -> Option<i64> {
    if depth > DEEPEST || !names.spend() {
        return None;
    }
    let of = |node: Node<'t>| integer(text, names, node, depth + 1);
    let operator = || text.get(node.child_by_field_name("operator")?.byte_range());
    match node.kind() {
        "integer" => literal(text.get(node.byte_range())?),
        "parenthesized_expression" => of(*named_children(node).first()?),
        "unary_operator" => match operator()? {
            "-" => of(node.child_by_field_name("argument")?)?.checked_neg(),
            "+" => of(node.child_by_field_name("argument")?),
            _ => None,
        },
        "binary_operator" => {
            let (left, right) = (of(node.child_by_field_name("left")?)?, of(node.child_by_field_name("right")?)?);
            match operator()? {
                "+" => left.checked_add(right),
                "-" => left.checked_sub(right),
                "*" => left.checked_mul(right),
                // Python rounds down, also below zero.
                "//" if right > 0 => Some(left.div_euclid(right)),
                "%" if right > 0 => Some(left.rem_euclid(right)),
                "<<" if left >= 0 && (0..LARGEST_EXPONENT).contains(&right) => left.checked_mul(1 << right),
                "**" if (0..=LARGEST_EXPONENT).contains(&right) => left.checked_pow(u32::try_from(right).ok()?),
                _ => None,
            }
        }
        "identifier" => of(names.value(text, node)?),
        _ => None,
    }
}

fn literal(text: &str) -> Option<i64> {
    let digits = text.replace('_', "");
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) => i64::from_str_radix(hexadecimal, 16).ok(),
        None => digits.parse().ok(),
    }
}
