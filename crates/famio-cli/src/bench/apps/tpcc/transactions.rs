//! The five transactions, by statements that are prepared once.

use super::draw::{Customer, Drawn};
use super::scale::DISTRICTS;
use crate::bench::sqlite3::{Connection, Statement, Value};

/// Declares the statements of a terminal, and prepares them.
macro_rules! statements {
    ($($name:ident = $sql:expr;)*) => {
        /// A terminal at the warehouse.
        pub struct Terminal<'c, 'a> { $($name: Statement<'c, 'a>,)* }

        impl<'c, 'a> Terminal<'c, 'a> {
            pub fn new(connection: &'c Connection<'a>) -> Result<Self, String> {
                Ok(Self { $($name: connection.prepare($sql)?,)* })
            }
        }
    };
}

statements! {
    begin = "BEGIN IMMEDIATE";
    begin_reading = "BEGIN";
    commit = "COMMIT";
    roll_back = "ROLLBACK";
    warehouse = "SELECT w_tax FROM warehouse WHERE w_id = 1";
    district = "SELECT d_next_o_id FROM district WHERE d_id = ?1";
    next_order = "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = ?1";
    customer = "SELECT c_discount, c_balance, c_credit = 'BC' FROM customer WHERE c_d_id = ?1 AND c_id = ?2";
    by_name = "SELECT c_id FROM customer WHERE c_d_id = ?1 AND c_last = ?2 ORDER BY c_first";
    order = "INSERT INTO orders VALUES(?1, ?2, ?3, 1, 0, ?4)";
    new_order = "INSERT INTO new_order VALUES(?1, ?2)";
    item = "SELECT i_price FROM item WHERE i_id = ?1";
    stock = "SELECT s_quantity FROM stock WHERE s_i_id = ?1";
    take = "UPDATE stock SET s_quantity = ?2, s_ytd = s_ytd + ?3, s_order_cnt = s_order_cnt + 1 WHERE s_i_id = ?1";
    line = "INSERT INTO order_line SELECT ?1, ?2, ?3, s_i_id, 0, ?5, ?6, substr(s_dist, 24 * ?1 - 23, 24) FROM stock \
            WHERE s_i_id = ?4";
    pay_warehouse = "UPDATE warehouse SET w_ytd = w_ytd + ?1 WHERE w_id = 1";
    pay_district = "UPDATE district SET d_ytd = d_ytd + ?1 WHERE d_id = ?2";
    pay_customer = "UPDATE customer SET c_balance = c_balance - ?1, c_ytd_payment = c_ytd_payment + ?1, \
                    c_payment_cnt = c_payment_cnt + 1 WHERE c_d_id = ?2 AND c_id = ?3";
    note_customer = "UPDATE customer SET c_data = substr(c_id || ' ' || c_d_id || ' ' || ?3 || ' ' || c_data, 1, 500) \
                     WHERE c_d_id = ?1 AND c_id = ?2";
    history = "INSERT INTO history SELECT ?1, d_id, 1, ?3, d_name || '    ' || (SELECT w_name FROM warehouse) \
               FROM district WHERE d_id = ?2";
    last_order = "SELECT o_id, o_carrier_id FROM orders WHERE o_d_id = ?1 AND o_c_id = ?2 ORDER BY o_id DESC LIMIT 1";
    lines = "SELECT ol_i_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line WHERE ol_d_id = ?1 AND ol_o_id = ?2";
    oldest_new = "SELECT no_o_id FROM new_order WHERE no_d_id = ?1 ORDER BY no_o_id LIMIT 1";
    no_longer_new = "DELETE FROM new_order WHERE no_d_id = ?1 AND no_o_id = ?2";
    carry = "UPDATE orders SET o_carrier_id = ?3 WHERE o_d_id = ?1 AND o_id = ?2";
    of_order = "SELECT o_c_id FROM orders WHERE o_d_id = ?1 AND o_id = ?2";
    deliver_lines = "UPDATE order_line SET ol_delivery_d = 1 WHERE ol_d_id = ?1 AND ol_o_id = ?2";
    amount = "SELECT sum(ol_amount) FROM order_line WHERE ol_d_id = ?1 AND ol_o_id = ?2";
    deliver_customer = "UPDATE customer SET c_balance = c_balance + ?3, c_delivery_cnt = c_delivery_cnt + 1 \
                        WHERE c_d_id = ?1 AND c_id = ?2";
    low_stock = "SELECT count(DISTINCT ol_i_id) FROM order_line JOIN stock ON s_i_id = ol_i_id \
                 WHERE ol_d_id = ?1 AND ol_o_id < ?2 AND ol_o_id >= ?2 - 20 AND s_quantity < ?3";
}

/// Runs a statement with these numbers; the first column of its last row.
fn run(statement: &mut Statement<'_, '_>, numbers: &[i64]) -> Result<Option<i64>, String> {
    let values: Vec<_> = numbers.iter().map(|&number| Value::Number(number)).collect();
    let mut found = None;
    statement.run(&values, |row| {
        found = Some(row.number(0));
        Ok(())
    })?;
    Ok(found)
}

/// The same where there must be a row.
fn one(statement: &mut Statement<'_, '_>, numbers: &[i64]) -> Result<i64, String> {
    run(statement, numbers)?.ok_or_else(|| "a row that must be there is not".into())
}

impl Terminal<'_, '_> {
    /// A whole transaction. One that has to roll back does.
    pub fn run(&mut self, drawn: &Drawn) -> Result<(), String> {
        let reads = matches!(drawn, Drawn::OrderStatus { .. } | Drawn::StockLevel { .. });
        run(if reads { &mut self.begin_reading } else { &mut self.begin }, &[])?;
        let commits = match drawn {
            Drawn::NewOrder { district, customer, lines, .. } => self.new_order(*district, *customer, lines)?,
            Drawn::Payment { district, customer, amount } => self.payment(*district, customer, *amount)?,
            Drawn::OrderStatus { district, customer } => self.order_status(*district, customer)?,
            Drawn::Delivery { carrier } => self.delivery(*carrier)?,
            Drawn::StockLevel { district, threshold } => self.stock_level(*district, *threshold)?,
        };
        run(if commits { &mut self.commit } else { &mut self.roll_back }, &[]).map(drop)
    }

    /// Whether it may commit: an item that is not there is a typing error, noticed when all before it is done.
    fn new_order(&mut self, district: i64, customer: i64, lines: &[(i64, i64)]) -> Result<bool, String> {
        one(&mut self.warehouse, &[])?;
        one(&mut self.customer, &[district, customer])?;
        let order = one(&mut self.district, &[district])?;
        run(&mut self.next_order, &[district])?;
        run(&mut self.order, &[district, order, customer, lines.len() as i64])?;
        run(&mut self.new_order, &[district, order])?;
        for (at, &(item, quantity)) in (1..).zip(lines) {
            let Some(price) = run(&mut self.item, &[item])? else { return Ok(false) };
            let stock = one(&mut self.stock, &[item])?;
            let left = if stock - quantity >= 10 { stock - quantity } else { stock - quantity + 91 };
            run(&mut self.take, &[item, left, quantity])?;
            run(&mut self.line, &[district, order, at, item, quantity, price * quantity])?;
        }
        Ok(true)
    }

    /// By last name it is the middle one of all who have it.
    fn find(&mut self, district: i64, customer: &Customer) -> Result<i64, String> {
        match customer {
            Customer::Id(id) => Ok(*id),
            Customer::LastName(name) => {
                let mut found = Vec::new();
                self.by_name.run(&[Value::Number(district), Value::Text(name)], |row| {
                    found.push(row.number(0));
                    Ok(())
                })?;
                let middle = found.len().saturating_sub(1) / 2;
                found.get(middle).copied().ok_or_else(|| format!("no customer has the name {name}"))
            }
        }
    }

    fn payment(&mut self, district: i64, customer: &Customer, amount: i64) -> Result<bool, String> {
        run(&mut self.pay_warehouse, &[amount])?;
        run(&mut self.pay_district, &[amount, district])?;
        let customer = self.find(district, customer)?;
        let mut has_bad_credit = false;
        self.customer.run(&[Value::Number(district), Value::Number(customer)], |row| {
            has_bad_credit = row.number(2) != 0;
            Ok(())
        })?;
        run(&mut self.pay_customer, &[amount, district, customer])?;
        if has_bad_credit {
            run(&mut self.note_customer, &[district, customer, amount])?;
        }
        run(&mut self.history, &[customer, district, amount])?;
        Ok(true)
    }

    fn order_status(&mut self, district: i64, customer: &Customer) -> Result<bool, String> {
        let customer = self.find(district, customer)?;
        one(&mut self.customer, &[district, customer])?;
        let order = one(&mut self.last_order, &[district, customer])?;
        one(&mut self.lines, &[district, order])?;
        Ok(true)
    }

    /// The oldest order of each district that has one.
    fn delivery(&mut self, carrier: i64) -> Result<bool, String> {
        for district in 1..=DISTRICTS {
            let Some(order) = run(&mut self.oldest_new, &[district])? else { continue };
            run(&mut self.no_longer_new, &[district, order])?;
            let customer = one(&mut self.of_order, &[district, order])?;
            run(&mut self.carry, &[district, order, carrier])?;
            run(&mut self.deliver_lines, &[district, order])?;
            let amount = one(&mut self.amount, &[district, order])?;
            run(&mut self.deliver_customer, &[district, customer, amount])?;
        }
        Ok(true)
    }

    fn stock_level(&mut self, district: i64, threshold: i64) -> Result<bool, String> {
        let next = one(&mut self.district, &[district])?;
        one(&mut self.low_stock, &[district, next, threshold])?;
        Ok(true)
    }
}
