//! The date that a template may ask for, and Python's strftime over it.

use crate::error::{Error, Result};

/// A minute of the Gregorian calendar, in whatever time zone the caller means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DateTime {
    pub year: i32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl DateTime {
    /// From seconds since the start of 1970, in UTC; for another time zone add its offset first.
    pub fn from_unix(seconds: i64) -> DateTime {
        let seconds = seconds.clamp(-62_135_596_800, 253_402_300_799); // the years 1 to 9999
        let (mut days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400) as u32);
        let mut year = 1970 + days.div_euclid(146_097) as i32 * 400; // the calendar repeats after 400 years
        days = days.rem_euclid(146_097);
        while days >= days_of(year) {
            days -= days_of(year);
            year += 1;
        }
        let mut month = 1;
        while days >= days_in(year, month) as i64 {
            days -= days_in(year, month) as i64;
            month += 1;
        }
        DateTime { year, month, day: days as u32 + 1, hour: second / 3600, minute: second / 60 % 60 }
    }

    /// From "YYYY-MM-DD HH:MM"; the time may be left out.
    pub fn parse(text: &str) -> Result<DateTime> {
        let wrong = || Error::Argument {
            what: "date".into(),
            expected: "YYYY-MM-DD HH:MM, a date of the calendar".into(),
            got: format!("{text:?}"),
        };
        let (date, time) = text.trim().split_once([' ', 'T']).unwrap_or((text.trim(), "00:00"));
        let numbers = |text: &str, separator| -> Option<Vec<u32>> {
            let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?;
            text.split(separator).map(digits).collect()
        };
        let (date, time) = (numbers(date, '-').ok_or_else(wrong)?, numbers(time, ':').ok_or_else(wrong)?);
        let (&[year, month, day], &[hour, minute]) = (&date[..], &time[..]) else { return Err(wrong()) };
        let valid = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_in(year as i32, month)).contains(&day)
            && hour < 24
            && minute < 60;
        if valid { Ok(DateTime { year: year as i32, month, day, hour, minute }) } else { Err(wrong()) }
    }

    /// Python's strftime; the error is the code that is not understood. Seconds are 0.
    pub fn format(&self, format: &str) -> std::result::Result<String, String> {
        let DateTime { year, month, day, hour, minute } = *self;
        let month_name = MONTHS[(month as usize).clamp(1, 12) - 1];
        let weekday = self.weekday();
        let weekday_name = WEEKDAYS[weekday as usize];
        let hour12 = (hour + 11) % 12 + 1;
        let mut out = String::new();
        let mut rest = format.chars();
        while let Some(char) = rest.next() {
            if char != '%' {
                out.push(char);
                continue;
            }
            let mut code = rest.next();
            let padded = code != Some('-'); // %-d is %d without its leading zero
            if !padded {
                code = rest.next();
            }
            let number = |value: u32, width: usize| format!("{value:0width$}", width = if padded { width } else { 1 });
            out += &match code {
                Some('Y') => year.to_string(),
                Some('y') => number(year.rem_euclid(100) as u32, 2),
                Some('m') => number(month, 2),
                Some('d') => number(day, 2),
                Some('e') => format!("{day:2}"),
                Some('j') => number(self.day_of_year(), 3),
                Some('H') => number(hour, 2),
                Some('I') => number(hour12, 2),
                Some('M') => number(minute, 2),
                Some('S') => number(0, 2),
                Some('p') => if hour < 12 { "AM" } else { "PM" }.to_string(),
                Some('B') => month_name.to_string(),
                Some('b' | 'h') => month_name[..3].to_string(),
                Some('A') => weekday_name.to_string(),
                Some('a') => weekday_name[..3].to_string(),
                Some('w') => weekday.to_string(),
                Some('u') => if weekday == 0 { 7 } else { weekday }.to_string(),
                Some('F') => self.format("%Y-%m-%d")?,
                Some('T') => self.format("%H:%M:%S")?,
                Some('R') => self.format("%H:%M")?,
                Some('D' | 'x') => self.format("%m/%d/%y")?,
                Some('X') => self.format("%H:%M:%S")?,
                Some('c') => self.format("%a %b %e %H:%M:%S %Y")?,
                Some('%') => "%".to_string(),
                Some(other) => return Err(format!("%{other}")),
                None => return Err("%".to_string()),
            };
        }
        Ok(out)
    }

    /// 1 to 366.
    fn day_of_year(&self) -> u32 {
        (1..self.month).map(|month| days_in(self.year, month)).sum::<u32>() + self.day
    }

    /// 0 is Sunday.
    fn weekday(&self) -> u32 {
        let years = self.year as i64 - 1; // whole years since the first Monday of the calendar, 0001-01-01
        let days = years * 365 + years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400);
        (days + self.day_of_year() as i64).rem_euclid(7) as u32
    }
}

fn days_in(year: i32, month: u32) -> u32 {
    match month {
        2 if days_of(year) == 366 => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_of(year: i32) -> i64 {
    if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) { 366 } else { 365 }
}
