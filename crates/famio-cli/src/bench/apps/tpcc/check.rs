//! The specification's consistency conditions, and whether every transaction is there that the terminal has been told
//! is.

use super::draw::Drawn;
use super::scale::{DISTRICTS, Scale};
use crate::bench::sqlite3::Connection;

/// Each must give no row. Numbers are those of the specification, 3.3.2.
const CONDITIONS: [(&str, &str); 8] = [
    ("1: w_ytd is the sum of d_ytd", "SELECT 1 FROM warehouse WHERE w_ytd <> (SELECT sum(d_ytd) FROM district)"),
    (
        "2: d_next_o_id follows the last order",
        "SELECT 1 FROM district WHERE d_next_o_id - 1 <> (SELECT max(o_id) FROM orders WHERE o_d_id = d_id)",
    ),
    (
        "3: new orders have no gaps",
        "SELECT 1 FROM new_order GROUP BY no_d_id HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)",
    ),
    (
        "4: orders have as many lines as they say",
        "SELECT 1 FROM district WHERE (SELECT sum(o_ol_cnt) FROM orders WHERE o_d_id = d_id) <> \
         (SELECT count(*) FROM order_line WHERE ol_d_id = d_id)",
    ),
    (
        "5: an order without a carrier is a new one",
        "SELECT 1 FROM orders WHERE (o_carrier_id = 0) <> \
         EXISTS(SELECT 1 FROM new_order WHERE no_d_id = o_d_id AND no_o_id = o_id)",
    ),
    (
        "7: lines are delivered as their order is",
        "SELECT 1 FROM order_line JOIN orders ON o_d_id = ol_d_id AND o_id = ol_o_id \
         WHERE (ol_delivery_d = 0) <> (o_carrier_id = 0)",
    ),
    ("8: w_ytd is what was paid", "SELECT 1 FROM warehouse WHERE w_ytd <> (SELECT sum(h_amount) FROM history)"),
    (
        "9: d_ytd is what was paid there",
        "SELECT 1 FROM district WHERE d_ytd <> (SELECT sum(h_amount) FROM history WHERE h_d_id = d_id)",
    ),
];

pub fn check(connection: &Connection<'_>, scale: Scale, calls: u64) -> Result<(), String> {
    let sound = connection.text("PRAGMA quick_check")?;
    if sound != "ok" {
        return Err(format!("quick_check says {sound}"));
    }
    for (what, sql) in CONDITIONS {
        if !connection.text(sql)?.is_empty() {
            return Err(format!("TPC-C's consistency condition does not hold: {what}"));
        }
    }
    let (mut orders, mut payments) = (scale.customers * DISTRICTS, scale.customers * DISTRICTS);
    for number in 1..=calls {
        match Drawn::of(number, scale) {
            Drawn::NewOrder { rolls_back: false, .. } => orders += 1,
            Drawn::Payment { .. } => payments += 1,
            _ => {}
        }
    }
    let counted = connection.text("SELECT (SELECT count(*) FROM orders) || ' ' || (SELECT count(*) FROM history)")?;
    let expected = format!("{orders} {payments}");
    match counted == expected {
        true => Ok(()),
        false => Err(format!("orders and payments are {counted}, and should be {expected}")),
    }
}
